import io
import signal

import pytest

from jengine import SamplingParams
from jengine.cli_chat import HELP, ChatSession, read_lines
from jengine.errors import ChatTemplateError
from jengine.offline_loop import AskedRequest, OfflineLoop
from jengine.outputs import CompletionOutput, RequestOutput
from jengine.prompts import ParsedPrompt

PARAMS = SamplingParams(temperature=0, max_tokens=9)


class Stream:
    """Answers, character by character; "^" in it is Ctrl-C."""

    def __init__(self, answer, reason):
        self.left, self.reason, self.is_closed = list(answer), reason, False

    def __iter__(self):
        while self.left:
            text = self.left.pop(0)
            if text == "^":
                raise KeyboardInterrupt
            reason = None if self.left else self.reason
            done = CompletionOutput(0, text, [1], finish_reason=reason)
            yield RequestOutput("0", None, [1], [done], finished=reason is not None)

    def close(self):
        self.is_closed = True


class FakeLLM:
    """Answers by what is scripted; notes the conversations."""

    def __init__(self, answers, reason="stop"):
        self.answers, self.reason = list(answers), reason
        self.asked, self.streams = [], []

    def stream_chat(self, messages, params):
        assert params is PARAMS
        self.asked.append([(m["role"], m["content"]) for m in messages])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.streams.append(Stream(answer, self.reason))
        return self.streams[-1]


def talk(llm, *lines, system=None):
    answers, remarks = io.StringIO(), io.StringIO()
    ChatSession(llm, PARAMS, system, answers, remarks).run(lines)
    assert all(stream.is_closed for stream in llm.streams)
    return answers.getvalue(), remarks.getvalue()


def test_all_that_was_said_is_sent_with_each_message():
    llm = FakeLLM(["Hello.", "Fine."])
    assert talk(llm, "hi", "", "  ", " how are you? ") == ("Hello.\nFine.\n", "")
    assert llm.asked == [
        [("user", "hi")],
        [("user", "hi"), ("assistant", "Hello."), ("user", "how are you?")],
    ]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said():
    llm = FakeLLM(["Hel^lo", "Fine."])
    assert talk(llm, "hi", "go on") == ("Hel\nFine.\n", "(stopped)\n")
    assert llm.asked[1] == [("user", "hi"), ("assistant", "Hel"), ("user", "go on")]


def test_a_message_without_an_answer_is_forgotten():
    llm = FakeLLM(["^", "Fine."])
    assert talk(llm, "hi", "again") == ("\nFine.\n", "(stopped)\n")
    assert llm.asked[1] == [("user", "again")]


def test_a_refused_message_costs_one_line_and_is_forgotten():
    llm = FakeLLM([ChatTemplateError("roles\nmust alternate"), "Fine."])
    assert talk(llm, "hi", "again") == ("Fine.\n", "error: roles must alternate\n")
    assert llm.asked[1] == [("user", "again")]


def test_a_bug_is_no_refusal():
    with pytest.raises(ZeroDivisionError):
        talk(FakeLLM([ZeroDivisionError()]), "hi")


def test_commands():
    llm = FakeLLM(["A", "B", "C", "D"])
    lines = ["/system be kind", "1", "/reset", "2", "/system  be brief ", "3"]
    said, remarks = talk(llm, *lines, "/system", "4", "/exit", "5", system="be good")
    assert (said, remarks) == ("A\nB\nC\nD\n", "")
    second = [("user", "2"), ("assistant", "B"), ("user", "3")]
    assert llm.asked == [
        [("system", "be kind"), ("user", "1")],
        [("system", "be kind"), ("user", "2")],
        [("system", "be brief"), *second],
        [*second, ("assistant", "C"), ("user", "4")],
    ]


def test_help_and_what_is_no_command():
    llm = FakeLLM(["A"])
    said, remarks = talk(llm, "/help", "/quit now", " /usr is what?")
    assert remarks == f"{HELP}unknown: /quit; /help lists what there is\n"
    assert llm.asked == [[("user", "/usr is what?")]]
    assert said == "A\n"


@pytest.mark.parametrize(
    ("reason", "remark"), [("length", "cut off"), ("error", "ended: error")]
)
def test_an_end_that_is_not_the_models_choice_is_told(reason, remark):
    _, remarks = talk(FakeLLM(["A"], reason), "hi")
    assert remarks.startswith(f"({remark}")


def test_lines_of_a_pipe_are_echoed():
    remarks = io.StringIO()
    lines = read_lines(io.StringIO("one\n\n two \r\nlast"), io.StringIO(), remarks)
    assert list(lines) == ["one", "", " two", "last"]
    assert remarks.getvalue() == "> one\n> \n>  two\n> last\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("answers", [io.StringIO(), Terminal()])
def test_lines_of_a_terminal(monkeypatch, answers):
    typed, prompts = ["one", KeyboardInterrupt(), "two", EOFError()], []

    def read(prompt):
        prompts.append(prompt)
        if isinstance(typed[0], BaseException):
            raise typed.pop(0)
        return typed.pop(0)

    monkeypatch.setattr("builtins.input", read)
    remarks = io.StringIO()
    assert list(read_lines(Terminal(), answers, remarks)) == ["one", "two"]
    assert set(prompts) == {"> " if answers.isatty() else ""}
    first, *others = remarks.getvalue().splitlines()
    assert (first[:5], others) == ("/help", ["", "/exit or Ctrl-D leaves.", ""])


@pytest.fixture
def listens_to_sigint():
    """As Python does from its start, unless it was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listens_to_sigint")
def test_a_real_signal_stops_a_real_answer(make_engine):
    """And the engine, which it struck amid a step, answers the next message."""
    engine = make_engine()
    loop = OfflineLoop(engine)
    collect, calls = engine.runner.collect, []

    def signal_and_collect(handle):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return collect(handle)

    engine.runner.collect = signal_and_collect

    class LLM:
        def stream_chat(self, messages, params):
            ids = [ord(m["content"][0]) - ord("a") for m in messages]
            return loop.stream(
                AskedRequest(ParsedPrompt(None, tuple(ids)), ids, params)
            )

    kind = type(PARAMS.output_kind).DELTA
    params = SamplingParams(temperature=0, max_tokens=9, output_kind=kind)
    answers, remarks = io.StringIO(), io.StringIO()
    ChatSession(LLM(), params, None, answers, remarks).run(["a", "b"])
    assert [len(line) for line in answers.getvalue().splitlines()] == [3, 9]
    first, second = remarks.getvalue().splitlines()
    assert (first, second[:8]) == ("(stopped)", "(cut off")
    assert not engine.has_unfinished_requests()
    engine.check_invariants()
