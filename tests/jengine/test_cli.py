import pathlib
import subprocess
import sys
from typing import NamedTuple

import pytest

import jengine
from jengine import cli
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
        completion = CompletionOutput(0, text, [ord(text)])
        done = not self.answers[key]
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


@pytest.fixture
def loaded(monkeypatch):
    """The models that the command loads, all fake."""
    made = []

    def load(model, options):
        made.append(FakeLLM(model, **options))
        return made[-1]

    monkeypatch.setattr(cli, "_load", load)
    return made


def test_one_prompt(loaded, capsys):
    assert cli.main(["generate", "--model", "m", "--prompt", "abc"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "cba\n"
    assert "1 request, 3 tokens in" in captured.err
    assert "num_steps 3, num_preemptions 0" in captured.err
    assert loaded[0].model == "m"


def test_several_prompts_are_answered_in_order(loaded, capsys, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("de\n\nf\n", "utf-8")
    arguments = ["generate", "--model", "m", "--prompt", "abc"]
    assert cli.main([*arguments, "--prompts-file", str(file)]) == 0
    assert capsys.readouterr().out == (
        "--- prompt 1 of 3: 'abc'\ncba\n"
        "\n--- prompt 2 of 3: 'de'\ned\n"
        "\n--- prompt 3 of 3: 'f'\nf\n"
    )


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


def test_without_a_model_the_demo_checkpoint_is_written_and_named(loaded, capsys):
    assert cli.main(["generate", "--prompt", "a"]) == 0
    assert "not trained" in capsys.readouterr().err
    assert not pathlib.Path(loaded[0].model).exists(), "it is removed at the end"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("generate --model m", "no prompt"),
        ("generate --model m --prompt a --top-p 0", "top_p is 0"),
        ("generate --model m --prompt a --block-size 0", "block_size is 0"),
        ("generate --model m --prompt a --n 2", "unrecognized arguments: --n 2"),
        ("generate --model m --prompt a --max-tokens x", "--max-tokens"),
        ("generate --model m --prompt refuse", "allowed: another one"),
        ("generate --model m --prompt ok --prompt refuse", "allowed: another one"),
        ("generate --model nowhere --prompt a", "model is 'nowhere'"),
        ("generate --model m --prompts-file missing.txt", "missing.txt"),
        ("", "COMMAND"),
        ("bench", "invalid choice"),
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


@pytest.mark.parametrize("content", [b"\n \n", b"\xff\xfe"], ids=["empty", "not UTF-8"])
def test_bad_prompts_file(loaded, capsys, tmp_path, content):
    file = tmp_path / "prompts.txt"
    file.write_bytes(content)
    assert cli.main(["generate", "--model", "m", "--prompts-file", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
    assert loaded == []


def test_prompts_from_stdin(loaded, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", ["not used"])
    monkeypatch.setattr("sys.stdin", type("In", (), {"read": lambda _: "ab\n"})())
    assert cli.main(["generate", "--model", "m", "--prompts-file", "-"]) == 0
    assert capsys.readouterr().out == "ba\n"


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


def run_command(*arguments):
    command = [sys.executable, "-m", "jengine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_demo_checkpoint_end_to_end():
    arguments = ["generate", "--prompt", "Once", "--temperature", "0"]
    done = run_command(*arguments, "--max-tokens", "8", "--logprobs", "0")
    assert done.returncode == 0, done.stderr
    text, *logprobs = done.stdout.splitlines()
    assert text.startswith(" ")
    assert len(logprobs) == 8
    assert "not trained" in done.stderr
    assert "1 request, 8 tokens" in done.stderr
    assert "num_steps 8" in done.stderr


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
