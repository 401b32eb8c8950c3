import io
import pathlib
import subprocess
import sys
from typing import NamedTuple

import pytest

import jengine
from jengine import cli, cli_model
from jengine.errors import ConfigError, PromptError
from jengine.outputs import CompletionOutput, RequestOutput
from jengine.sampling_params import RequestOutputKind, SamplingParams


class Stats(NamedTuple):
    num_steps: int
    num_preemptions: int


class FakeEngine:
    """Answers each prompt by its own text, backwards, a character a step."""

    def __init__(self):
        self.answers: dict[str, list[str]] = {}
        self.params = []
        self.prompts = []
        self.steps = 0
        self.tokenizer = object()

    def add_request(self, request_id, prompt, params):
        if prompt == "refuse":
            raise PromptError("prompt", prompt, "another one")
        self.prompts.append(prompt)
        self.params.append(params)
        self.answers[request_id] = list(str(prompt))

    def has_unfinished_requests(self):
        return any(self.answers.values())

    def step(self):
        self.steps += 1
        if "interrupt" in self.prompts and self.steps == 2:
            raise KeyboardInterrupt
        if "crash" in self.prompts:
            raise ValueError("a bug")
        return [self._advance(key) for key, left in self.answers.items() if left]

    def _advance(self, key):
        text = self.answers[key].pop()
        done = not self.answers[key]
        reason = "stop" if done else None
        completion = CompletionOutput(0, text, [ord(text)], finish_reason=reason)
        return RequestOutput(key, None, [1, 2], [completion], finished=done)

    @property
    def stats(self):
        return Stats(self.steps, 0)


class FakeLLM:
    def __init__(self, model, **options):
        if model == "nowhere":
            raise ConfigError("model", model, "something that exists")
        self.model, self.options = model, options
        self.llm_engine = FakeEngine()

    def get_default_sampling_params(self):
        return SamplingParams(temperature=0.5, top_k=7)

    def stream_chat(self, messages, params):
        self.llm_engine.params.append(params)
        text = str([message["content"] for message in messages])
        done = CompletionOutput(0, text, [1], finish_reason="stop")
        yield RequestOutput("0", None, [1, 2], [done], finished=True)


@pytest.fixture
def loaded(monkeypatch):
    """The models that the command loads, all fake."""
    made = []

    def load(model, options):
        made.append(FakeLLM(model, **options))
        return made[-1]

    monkeypatch.setattr(cli_model, "_load", load)
    return made


def test_one_prompt(loaded, capsys):
    assert cli.main(["generate", "--model", "m", "--prompt", "abc"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "cba\n"
    assert "1 request, 3 tokens in" in captured.err
    assert "num_steps 3, num_preemptions 0" in captured.err
    assert loaded[0].model == "m"


def test_flags_are_laid_over_what_the_checkpoint_proposes(loaded):
    line = "generate --model m --prompt a --top-k 3 --max-tokens 9 --block-size 8"
    assert cli.main(line.split()) == 0
    assert loaded[0].options == {"block_size": 8}
    (params,) = loaded[0].llm_engine.params
    assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 3, 9)
    assert params.output_kind is RequestOutputKind.DELTA


@pytest.fixture
def rendered(monkeypatch):
    """What the chat template is asked to render; renders to the content's bytes."""
    calls = []

    def render(tokenizer, messages, *, chat_template):
        calls.append((messages, chat_template))
        return list(messages[-1]["content"].encode())

    monkeypatch.setattr("jengine.text.chat.render", render)
    return calls


def test_chat_applies_the_template(loaded, rendered):
    arguments = ["generate", "--model", "m", "--prompt", "hi", "--chat"]
    assert cli.main([*arguments, "--chat-template", "{{ messages }}"]) == 0
    assert rendered == [([{"role": "user", "content": "hi"}], "{{ messages }}")]
    assert loaded[0].llm_engine.prompts == [[104, 105]]


def test_a_conversation(loaded, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nagain\n"))
    arguments = ["chat", "--model", "m", "--system", "be kind", "--top-k", "3"]
    assert cli.main([*arguments, "--block-size", "8"]) == 0
    captured = capsys.readouterr()
    first = ["be kind", "hi"]
    assert captured.out == f"{first}\n{[*first, str(first), 'again']}\n"
    assert captured.err == "> hi\n> again\n"
    assert loaded[0].options == {"block_size": 8}
    params = loaded[0].llm_engine.params[0]
    assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 3, None)


@pytest.mark.parametrize("line", ["generate --prompt a", "chat"])
def test_without_a_model_the_demo_model_is_used_and_named(
    loaded, capsys, monkeypatch, line
):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli.main(line.split()) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("no --model given: using the demo model")
    assert (pathlib.Path(loaded[0].model) / "config.json").is_file()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("generate --model m", "no prompt"),
        ("generate --model m --prompt a --top-p 0", "top_p is 0"),
        ("generate --model m --prompt a --block-size 0", "block_size is 0"),
        ("generate --model m --prompt a --best-of 2", "arguments: --best-of 2"),
        ("generate --model m --prompt a --n 0", "n is 0"),
        ("generate --model m --prompt a --logit-bias 3", "is no JSON object"),
        ("chat --model nowhere", "model is 'nowhere'"),
        ("chat --model m --n 2", "one answer at a time"),
        ("chat --model m --top-p 0", "top_p is 0"),
        ("chat --model m --skip-tokenizer-init", "needs a tokenizer"),
        ("chat --model m --prompt a", "unrecognized arguments: --prompt a"),
        ("generate --model m --prompt a --max-tokens x", "--max-tokens"),
        ("generate --model m --prompt refuse", "allowed: another one"),
        ("generate --model m --prompt ok --prompt refuse", "allowed: another one"),
        ("generate --model nowhere --prompt a", "model is 'nowhere'"),
        ("generate --model m --prompts-file missing.txt", "missing.txt"),
        ("", "COMMAND"),
        ("bench", "WHAT"),
        ("bench everything", "invalid choice"),
    ],
)
def test_bad_input_is_one_line_and_status_2(loaded, capsys, line, named):
    try:
        status = cli.main(line.split())
    except SystemExit as stop:  # argparse leaves this way
        status = stop.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert named in captured.err
    assert captured.err.startswith("jengine: error: ")
    assert captured.err.count("\n") == 1


def test_ctrl_c_gives_130_and_no_traceback(loaded, capsys):
    assert cli.main(["generate", "--model", "m", "--prompt", "interrupt"]) == 130
    captured = capsys.readouterr()
    assert captured.out.startswith("t")
    assert captured.err.endswith("interrupted\n")


def test_a_bug_keeps_its_traceback(loaded):
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["generate", "--model", "m", "--prompt", "crash"])


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"jengine {jengine.__version__}\n"


def test_python_m_jengine_is_the_same_and_loads_no_jax():
    code = (
        "import runpy, sys; sys.argv = ['jengine', '--version']\n"
        "try: runpy.run_module('jengine', run_name='__main__')\n"
        "except SystemExit: print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"jengine {jengine.__version__}\nFalse\n"


def run_command(*arguments, typed=""):
    return subprocess.run(
        [sys.executable, "-m", "jengine", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_demo_model_end_to_end():
    arguments = ["generate", "--prompt", "Once upon a", "--temperature", "0"]
    done = run_command(*arguments, "--max-tokens", "8", "--logprobs", "0")
    assert done.returncode == 0, done.stderr
    text, *logprobs = done.stdout.splitlines()
    assert text.startswith(" time, there was")
    assert len(logprobs) == 8
    assert "using the demo model" in done.stderr
    assert "1 request, 8 tokens" in done.stderr
    assert "num_steps 8" in done.stderr


@pytest.mark.slow
def test_demo_model_in_a_conversation(small_options, capsys, monkeypatch):
    cache = small_options["compilation_cache_dir"]
    flags = ["--compilation-cache-dir", cache, "--max-num-seqs", "2"]
    limits = ["--max-model-len", "64", "--max-num-batched-tokens", "64"]
    lines = ["Hello", "And then?", "/reset", "Hello", "x" * 199, "/exit", "not read"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    sampling = ["--temperature", "0", "--max-tokens", "5"]
    assert cli.main(["chat", *flags, *limits, *sampling]) == 0
    captured = capsys.readouterr()
    answers = captured.out.splitlines()
    assert len(answers) == 3
    assert all(answers)
    assert answers[0] == answers[2]
    assert captured.err.count("error: the length of prompt is") == 1
    assert captured.err.count("(cut off") == 3
    assert "not read" not in captured.err


@pytest.mark.slow
@pytest.mark.checkpoint
def test_real_checkpoint_answers_a_chat(smollm2_gguf):
    question = "What is the capital of France?"
    flags = ["--max-tokens", "16", "--max-model-len", "128", "--max-num-seqs", "2"]
    done = run_command(
        *["generate", "--model", str(smollm2_gguf), "--chat", "--prompt", question],
        *["--temperature", "0", *flags],
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
