import collections
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("demo_training.clean_stories", reason="only in a checkout")

from demo_training.clean_stories import MIN_WORDS, clean, clean_all, why_bad

GOOD = (
    "Once upon a time, there was a fox. He found a red ball by the river. It was wet. "
    'He took it home to his mother. "Look at my ball!" he said. She smiled at him. '
    "Then they played in the garden until the sun went down. At night he put the ball "
    "under his bed and dreamed of tomorrow."
)


def test_a_good_story_stays_as_it_is():
    assert clean(GOOD) == GOOD
    assert why_bad(GOOD) is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("He ran. He fell", "He ran."),
        ("He saw a cat. He ran. he  saw a cat. Then he left.", "He saw a cat. He ran."),
        ("No. No. He left.", "No. No. He left."),
        ("“Hi!”  he said… It\u2019s late.", '"Hi!" he said... It\'s late.'),
        ("He ran.\n \nHe fell.\nHe cried.", "He ran.\n\nHe fell.\n\nHe cried."),
        ("He ran. 猫 came. He fell.", "He ran."),
        ("He ran. " + "big and red and " * 4 + "blue. He fell.", "He ran."),
        ('He said, "Go home. Now', 'He said, "Go home."'),
        ("nothing whole", ""),
    ],
)
def test_the_rest_is_cut(text, kept):
    assert clean(text) == kept


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("He ran.", "short"),
        (GOOD + " As an AI I cannot play.", "off topic"),
        (GOOD + " The fox told a tale of faith. He is dead.", "off topic"),
        (" ".join(["He was sad."] * MIN_WORDS), "monotonous"),
    ],
)
def test_bad_stories(text, reason):
    assert why_bad(text) == reason


def test_each_story_once_in_order():
    reasons = collections.Counter()
    other = GOOD.replace("fox", "cat")
    lines = [
        {"number": number, "text": text}
        for number, text in enumerate([GOOD, "No.", other, GOOD])
    ]
    kept = list(clean_all(reversed(lines), reasons))
    assert [line["number"] for line in kept] == [0, 2]
    assert reasons == {"short": 1, "twice": 1}


@given(st.text(alphabet=string.printable + "\u2019é猫", max_size=200))
def test_what_is_kept_is_plain_whole_sentences_and_stays(text):
    kept = clean(text)
    assert kept.isascii()
    assert not kept or kept[-1] in ".!?\"')"
