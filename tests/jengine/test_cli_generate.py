import argparse
import io
import types

import pytest

from jengine.cli_generate import (
    add_prompt_flags,
    read_prompts,
    render_chats,
    stream_answers,
)
from jengine.cli_model import BadInputError
from jengine.errors import PromptError
from jengine.outputs import CompletionOutput, Logprob, RequestOutput
from jengine.sampling_params import SamplingParams


def read(*arguments):
    parser = argparse.ArgumentParser()
    add_prompt_flags(parser.add_argument_group())
    return read_prompts(parser.parse_args(arguments))


def test_prompts_from_the_line_come_before_those_of_a_file(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("de\n\n f \n", "utf-8")
    arguments = ["--prompt", "a b", "--prompts-file", str(file), "--prompt", "c"]
    assert read(*arguments) == ["a b", "c", "de", " f "]


def test_prompts_from_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\ncd"))
    assert read("--prompts-file", "-") == ["ab", "cd"]


def test_no_prompt():
    with pytest.raises(BadInputError, match="no prompt: give --prompt"):
        read()


@pytest.mark.parametrize("content", [b"\n \n", b"\xff\xfe"], ids=["empty", "not UTF-8"])
def test_a_file_that_cannot_be_used(tmp_path, content):
    file = tmp_path / "prompts.txt"
    file.write_bytes(content)
    with pytest.raises(BadInputError, match=str(file)):
        read("--prompts-file", str(file))


def test_chats_need_a_tokenizer():
    llm = types.SimpleNamespace(llm_engine=types.SimpleNamespace(tokenizer=None))
    with pytest.raises(BadInputError, match="--skip-tokenizer-init"):
        render_chats(llm, ["hi"], None)


class Script:
    """An engine that brings the outputs it was given, one a step."""

    def __init__(self, outputs):
        self.outputs, self.added = list(outputs), []

    def add_request(self, request_id, prompt, params):
        if prompt == "refuse":
            raise PromptError("prompt", prompt, "another one")
        self.added.append((request_id, prompt, params))

    def has_unfinished_requests(self):
        return bool(self.outputs)

    def step(self):
        return [self.outputs.pop(0)]


def piece(prompt, answer, text, *, end=None, logprob=None, prompt_logprobs=None):
    entries = None if logprob is None else [{7: Logprob(logprob, 1, "x")}]
    completion = CompletionOutput(
        answer, text, [7], logprobs=entries, finish_reason=end
    )
    return RequestOutput(
        str(prompt),
        None,
        [3, 4],
        [completion],
        finished=end is not None,
        prompt_logprobs=prompt_logprobs,
    )


def show(outputs, num_prompts=1, n=1):
    engine, stream = Script(outputs), io.StringIO()
    prompts = [f"p{i}" for i in range(num_prompts)]
    params = SamplingParams(n=n)
    totals = stream_answers(engine, prompts, prompts, params, stream)
    assert engine.added == [(str(i), p, params) for i, p in enumerate(prompts)]
    return stream.getvalue(), totals


def test_several_prompts_are_answered_in_order():
    outputs = [piece(1, 0, "B"), piece(0, 0, "a"), piece(1, 0, "b", end="stop")]
    text, totals = show([*outputs, piece(0, 0, "A", end="length")], num_prompts=2)
    assert text == ("--- prompt 1 of 2: 'p0'\naA\n\n--- prompt 2 of 2: 'p1'\nBb\n")
    assert (totals.num_requests, totals.num_output_tokens) == (2, 4)


def test_several_answers_to_each_prompt():
    rows = [(0, 0), (0, 1), (1, 0), (1, 1)]
    outputs = [piece(*row, f"{row[0]}{row[1]}", end="stop") for row in rows]
    text, totals = show(reversed(outputs), num_prompts=2, n=2)
    lines = text.splitlines()
    assert [line for line in lines if line.isdecimal()] == ["00", "01", "10", "11"]
    assert lines[0] == "--- prompt 1 of 2, answer 1 of 2: 'p0'"
    assert lines[-2] == "--- prompt 2 of 2, answer 2 of 2: 'p1'"
    assert totals.num_output_tokens == 4


def test_logprobs_follow_the_answer():
    entry = {4: Logprob(-0.5, 1, "y")}
    outputs = [
        piece(0, 0, "a", logprob=-1.0, prompt_logprobs=[None, entry]),
        piece(0, 0, "b", logprob=-2.0, end="stop"),
    ]
    text, _ = show(outputs)
    assert text == (
        "ab\n  prompt 4 'y' -0.500 (#1)\n  7 'x' -1.000 (#1)\n  7 'x' -2.000 (#1)\n"
    )


def test_a_refused_prompt_is_the_callers_business():
    engine = Script([])
    with pytest.raises(PromptError):
        stream_answers(engine, ["refuse"], ["t"], SamplingParams(), io.StringIO())
