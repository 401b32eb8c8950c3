import json

import pytest

from jengine.bench.datasets import (
    random_requests,
    shared_prefix_requests,
    sharegpt_requests,
    trace_requests,
    unlike,
)
from jengine.bench.trace import TraceEntry
from jengine.errors import InvalidValueError


def test_random_prompts_have_their_lengths_and_share_a_prefix():
    found = random_requests(20, input_len=30, output_len=7, vocab_size=50, prefix_len=5)
    assert {len(one.token_ids) for one in found} == {35}
    assert {one.prompt_tokens for one in found} == {35}
    assert {one.output_tokens for one in found} == {7}
    assert len({one.token_ids[:5] for one in found}) == 1
    assert len({one.token_ids[5:] for one in found}) == 20
    assert {i for one in found for i in one.token_ids} <= set(range(50))


def test_lengths_are_spread_by_the_ratio():
    found = random_requests(
        300, input_len=100, output_len=10, vocab_size=9, range_ratio=0.5
    )
    prompts = {one.prompt_tokens for one in found}
    outputs = {one.output_tokens for one in found}
    assert (min(prompts), max(prompts)) == (50, 150)
    assert outputs == set(range(5, 16))
    with pytest.raises(InvalidValueError, match="range_ratio"):
        random_requests(1, input_len=1, output_len=1, vocab_size=9, range_ratio=1.0)


def test_the_same_seed_draws_the_same():
    sizes = {"input_len": 4, "output_len": 1, "vocab_size": 99}
    assert random_requests(3, **sizes) == random_requests(3, **sizes)
    assert random_requests(3, **sizes) != random_requests(3, **sizes, seed=1)


def test_each_prefix_has_an_equal_share():
    found = shared_prefix_requests(
        12, num_prefixes=3, prefix_len=8, suffix_len=4, output_len=2, vocab_size=1000
    )
    shares = {}
    for one in found:
        assert len(one.token_ids) == one.prompt_tokens == 12
        shares[one.token_ids[:8]] = shares.get(one.token_ids[:8], 0) + 1
    assert sorted(shares.values()) == [4, 4, 4]
    assert len({one.token_ids[8:] for one in found}) == 12
    with pytest.raises(InvalidValueError, match="num_prefixes"):
        shared_prefix_requests(2, vocab_size=9)


@pytest.fixture
def conversations(tmp_path):
    """Five conversations, of which two can be used; a word is a token."""
    turns = [
        ["a b c d e", "one two three four five six"],
        ["short", "one two three four five"],
        ["a b c d e", "short"],
        ["x " * 1025, "one two three four"],
        ["only one turn of this"],
        ["g h i j", "one two three four"],
    ]
    listed = [
        {"conversations": [{"from": "human", "value": text} for text in one]}
        for one in turns
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(listed))
    return path


def encode(text):
    return [len(word) for word in text.split()]


def test_conversations_that_fit(conversations):
    found = sharegpt_requests(conversations, 10, encode=encode)
    assert {(one.text, one.output_tokens) for one in found} == {
        ("a b c d e", 6),
        ("g h i j", 4),
    }
    assert all(one.token_ids == (1,) * one.prompt_tokens for one in found)
    (one,) = sharegpt_requests(conversations, 1, encode=encode, output_len=9)
    assert one.output_tokens == 9


def test_a_length_that_is_given_may_be_short(conversations):
    found = sharegpt_requests(conversations, 10, encode=encode, output_len=2)
    assert {(one.text, one.output_tokens) for one in found} == {
        ("a b c d e", 2),
        ("g h i j", 2),
    }


def test_no_conversation_that_fits(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text("[]")
    with pytest.raises(InvalidValueError, match="a file of conversations"):
        sharegpt_requests(path, 10, encode=encode)


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", '{"conversations": []}', '[{"turns": []}]', "[1]", "\x00"]
)
def test_files_of_another_form(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match="a JSON list of objects"):
        sharegpt_requests(path, 10, encode=encode)


def test_a_turn_without_text(tmp_path):
    path = tmp_path / "null.json"
    path.write_text('[{"conversations": [{"value": null}, {"value": "one two"}]}]')
    with pytest.raises(InvalidValueError, match="TypeError: a value is None"):
        sharegpt_requests(path, 10, encode=encode)


def test_a_trace_keeps_times_and_lengths():
    entries = [TraceEntry(0.0, 3, 2), TraceEntry(1.5, 5, 4)]
    found = trace_requests(entries, vocab_size=10)
    assert [one.arrival_s for one in found] == [0.0, 1.5]
    assert [len(one.token_ids) for one in found] == [3, 5]
    assert [one.output_tokens for one in found] == [2, 4]


def test_requests_unlike_others_share_what_these_share():
    given = shared_prefix_requests(
        4, num_prefixes=2, prefix_len=8, suffix_len=4, output_len=2, vocab_size=99
    )
    found = unlike(given, vocab_size=99)
    assert [(o.prompt_tokens, o.output_tokens) for o in found] == [(12, 2)] * 4
    begun = [one.token_ids[:8] for one in found]
    assert len(set(begun)) == 2
    assert not set(begun) & {one.token_ids[:8] for one in given}
    assert {i for one in found for i in one.token_ids} <= set(range(99))
