import math

import pytest

from jengine.display import logprob_map
from jengine.errors import InvalidValueError
from jengine.outputs import CompletionOutput, Logprob, RequestOutput


def entry(share, rank, text):
    return Logprob(math.log(share), rank, text)


def completion(**fields):
    positions = [
        {5: entry(0.75, 1, " a"), 6: entry(0.25, 2, "b$")},
        {7: entry(0.5, 1, "c"), 9: entry(0.001, 31, "\n")},
    ]
    return CompletionOutput(0, "x", [6, 9], logprobs=positions, **fields)


def test_tokens_their_shares_and_their_ranks():
    output = RequestOutput("0", "p", [1], [completion()], finished=True)
    for given in (completion(), output):
        axes = logprob_map(given).figure.axes[0]
        assert [text.get_text() for text in axes.texts] == [
            "␣a\n0.75",
            "b\\$\n0.25",
            "c\n0.50",
            "\\n\n<.01\n#31",
        ]
        frames = [(patch.get_x(), patch.get_y()) for patch in axes.patches]
        assert frames == [(-0.48, 0.52), (0.52, 0.52)]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["1", ""]


def test_letters_that_the_font_lacks_are_escaped():
    positions = [{5: entry(1.0, 1, "猫é")}]
    axes = logprob_map(CompletionOutput(0, "x", [5], logprobs=positions)).figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["\\u732bé\n1.00"]


def test_logits_are_no_probabilities():
    positions = [{5: Logprob(3.5, 1, "a")}]
    with pytest.raises(InvalidValueError, match=r"3\.5.*raw_logits"):
        logprob_map(CompletionOutput(0, "x", [5], logprobs=positions))


def test_without_logprobs_the_error_says_how_to_ask():
    with pytest.raises(InvalidValueError, match=r"SamplingParams\(logprobs=5\)"):
        logprob_map(CompletionOutput(0, "x", [1]))
