import io
import itertools
from typing import NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from jengine.cli_output import AnswerPrinter, Totals, format_logprobs, format_run
from jengine.outputs import CompletionOutput, Logprob, RequestOutput


def test_a_lone_answer_is_written_as_it_grows():
    stream = io.StringIO()
    printer = AnswerPrinter(["p"], stream)
    assert stream.getvalue() == ""
    printer.add(0, "a")
    assert stream.getvalue() == "a"
    printer.add(0, "b")
    printer.finish(0)
    assert stream.getvalue() == "ab\n"


def test_later_answers_wait_for_the_first():
    stream = io.StringIO()
    printer = AnswerPrinter(["p", "q" * 100], stream)
    printer.add(1, "B1")
    printer.add(0, "A")
    printer.finish(1, "end of B\n")
    assert stream.getvalue() == "--- prompt 1 of 2: 'p'\nA"
    printer.finish(0)
    title = "'" + "q" * 59 + "...'"
    assert stream.getvalue() == (
        f"--- prompt 1 of 2: 'p'\nA\n\n--- prompt 2 of 2: {title}\nB1\nend of B\n"
    )


def test_what_waited_is_shown_when_its_turn_comes():
    stream = io.StringIO()
    printer = AnswerPrinter(["p", "q"], stream)
    printer.add(1, "B1")
    printer.finish(0)
    assert stream.getvalue().endswith("B1")
    printer.add(1, "B2")
    assert stream.getvalue().endswith("B1B2")


@hypothesis.given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_the_order_of_arrival_never_changes_what_is_printed(data, rows, steps):
    pieces = list(itertools.product(range(rows), range(steps)))
    order = data.draw(st.permutations([row for row, _ in pieces]))
    stream, seen = io.StringIO(), [0] * rows
    printer = AnswerPrinter([f"p{row}" for row in range(rows)], stream)
    for row in order:
        printer.add(row, f"{row}.{seen[row]} ")
        seen[row] += 1
        if seen[row] == steps:
            printer.finish(row)
    answers = ["".join(f"{row}.{i} " for i in range(steps)) for row in range(rows)]
    lines = [line for line in stream.getvalue().splitlines() if line in answers]
    assert lines == answers


def make_output(token_ids, *, finished):
    completion = CompletionOutput(0, "x", token_ids)
    return RequestOutput(
        "0", "p", [1, 2, 3], [completion], finished=finished, num_cached_tokens=2
    )


def test_totals_count_each_token_and_each_prompt_once():
    totals = Totals()
    for output in (
        make_output([5], finished=False),
        make_output([6, 7], finished=True),
    ):
        totals = totals.plus(output)
    assert totals == Totals(
        num_requests=1, num_prompt_tokens=3, num_cached_tokens=2, num_output_tokens=3
    )


class Inner(NamedTuple):
    num_preemptions: int


class Outer(NamedTuple):
    num_steps: int
    scheduler: Inner


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_figures_of_a_run(seconds):
    totals = Totals(num_requests=2, num_output_tokens=8)
    text = format_run(totals, seconds, Outer(3, Inner(1)))
    rate = "0.0" if seconds == 0 else "4.0"
    assert f"2 requests, 8 tokens in {seconds:.2f} s: {rate} tokens/s" in text
    assert text.endswith("num_steps 3, num_preemptions 1\n")


def test_logprobs_start_with_the_token_itself():
    entry = {5: Logprob(-0.25, 2, " a"), 9: Logprob(-0.125, 1, None)}
    completion = CompletionOutput(0, " a", [5], logprobs=[entry])
    assert format_logprobs(completion) == "  5 ' a' -0.250 (#2) | 9 -0.125 (#1)\n"
    assert format_logprobs(CompletionOutput(0, " a", [5])) == ""
