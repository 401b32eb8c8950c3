import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.structured_output.constraint import BadWords, Constraint

IDS = st.integers(0, 3)


def allowed(constraint, vocab_size=70):
    mask = np.full(-(-vocab_size // 32), -1, np.int32)
    constraint.restrict(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.nonzero(bits[:vocab_size])[0].tolist())


@given(
    words=st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=4),
    output=st.lists(IDS, max_size=6),
    cut=st.integers(0, 6),
)
def test_only_what_would_complete_a_word_is_forbidden(words, output, cut):
    constraint = BadWords(words)
    constraint.restart(output[:cut])
    for token in output[cut:]:
        assert constraint.advance(token) is False
    expected = {
        token
        for token in range(70)
        if not any([*output, token][-len(word) :] == word for word in words)
    }
    assert allowed(constraint) == expected


def test_restarting_forgets_what_came_before():
    constraint = BadWords([[1, 2]])
    assert isinstance(constraint, Constraint)
    constraint.advance(1)
    assert 2 not in allowed(constraint)
    constraint.restart([])
    assert 2 in allowed(constraint)


@pytest.mark.parametrize("end", [31, 32, 63, 64])
def test_ids_at_the_edges_of_words(end):
    assert set(range(70)) - allowed(BadWords([[end]])) == {end}


def test_every_sequence_avoids_the_words():
    words = [(0, 1), (1, 1, 0), (2,)]
    for ids in itertools.product(range(3), repeat=4):
        constraint = BadWords(words)
        passes = True
        for token in ids:
            passes &= token in allowed(constraint)
            constraint.advance(token)
        holds = any(
            ids[i : i + len(word)] == word for word in words for i in range(len(ids))
        )
        assert passes is not holds
