import itertools
import json

import numpy as np
import pytest

pytest.importorskip("demo_training.corpus", reason="only in a checkout")

from demo_training.corpus import (
    BOS,
    EOS,
    Encoded,
    Story,
    one_a_row,
    pack,
    read_stories,
    vary,
)
from demo_training.story_prompts import story_prompt
from demo_training.train_tokenizer import train_tokenizer

STORIES = [
    Story(i, f"Story {i} is about {i} cats. They sleep.", story_prompt(i).request)
    for i in range(40)
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer((story.text for story in STORIES), 280)


@pytest.fixture(scope="module")
def encoded(tokenizer):
    return [Encoded.of(story, tokenizer) for story in STORIES]


def test_one_story_in_twenty_is_held_out(tmp_path):
    file = tmp_path / "stories.jsonl"
    lines = [{"number": story.number, "text": story.text} for story in STORIES]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    learnt, held_out = read_stories(file)
    assert [story.number for story in held_out] == [0, 20]
    assert sorted(learnt + held_out) == STORIES


def test_a_story_is_encoded_with_and_without_its_request(encoded, tokenizer):
    story, request = STORIES[3], story_prompt(3).request
    assert tokenizer.decode(list(encoded[3].plain)) == story.text
    assert tokenizer.decode(list(encoded[3].asked)) == f"{request}\n{story.text}"
    for ids in (encoded[3].plain, encoded[3].asked):
        assert (ids[0], ids[-1]) == (BOS, EOS)


def test_rows_are_full_of_whole_stories_and_requests_are_not_learnt(encoded):
    rows = pack(encoded, 100, np.random.default_rng(0))
    assert rows.ids.shape[1] == 100
    assert (rows.ids[:, 0] == BOS).all()
    known = {tuple(e.plain): 0 for e in encoded}
    known |= {tuple(e.asked): e.num_asked for e in encoded}
    asked = set()
    for ids, is_target in zip(rows.ids, rows.is_target, strict=True):
        starts = [*np.flatnonzero(ids == BOS), len(ids)]
        for start, end in itertools.pairwise(starts[:-1]):
            num_asked = known[tuple(ids[start:end])]
            asked.add(num_asked > 0)
            wanted = [0] * (1 + num_asked) + [1] * (end - start - 1 - num_asked)
            assert is_target[start:end].tolist() == wanted
    assert asked == {True, False}


def test_names_and_animals_change_together():
    number = next(n for n in range(99) if story_prompt(n).who == "fox")
    prompt = story_prompt(number)
    text = f"{prompt.name} was a fox. {prompt.name}'s foxtail was red, said the fox."
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        story = vary(Story(number, text, prompt.request), rng)
        name, _, _, who, *_ = story.text.replace(".", "").split()
        seen.add((name, who))
        assert story.text == text.replace(prompt.name, name).replace(
            "fox", who
        ).replace(f"{who}tail", "foxtail")
        assert f"a {who} named {name}" in story.request
    assert len({name for name, _ in seen}) > 5
    assert len({who for _, who in seen}) > 5


def test_too_few_stories(encoded):
    with pytest.raises(ValueError, match="too few stories"):
        pack(encoded[:1], 1000, np.random.default_rng(0))


def test_one_story_a_row(encoded):
    rows = one_a_row(encoded[:2], 100)
    for ids, is_target, story in zip(*rows, encoded, strict=False):
        assert ids[is_target > 0].tolist() == story.plain[1:].tolist()
