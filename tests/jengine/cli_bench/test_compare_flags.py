import json

import pytest

from jengine import cli
from jengine.bench.compare.launch import CompareRequest
from jengine.bench.compare.result import BackendResult, Sample
from jengine.cli_bench import compare_flags


def result(error=None):
    return BackendResult(
        backend="jengine",
        version="1",
        batch=1,
        prompt_tokens=80,
        output_tokens=64,
        samples=(Sample(tokens_per_s=30.0, foreign_cpus=0.0),),
        max_foreign_cpus=0.1,
        error=error,
    )


@pytest.fixture
def asked(monkeypatch):
    """The requests that the command made, and what comes of them."""
    asked = {"requests": [], "results": [result()]}

    def run_comparison(request, environment, say):
        assert environment
        asked["requests"].append(request)
        say("jengine: starting")
        return asked["results"]

    monkeypatch.setattr(compare_flags, "run_comparison", run_comparison)
    return asked


def test_usual_request(asked, capsys):
    assert cli.main(["bench", "compare", "--model", "m"]) == 0
    assert asked["requests"] == [CompareRequest(model="m")]
    out, err = capsys.readouterr()
    assert "30.0 (30.0-30.0)" in out
    assert err == "jengine: starting\n"


def test_every_flag_reaches_the_request(asked, tmp_path):
    flags = (
        "bench compare --model m --backends jengine,vllm --python vllm=/opt/python"
        " --engine-options jengine={\"block_size\":32} --env vllm.A=1 --env vllm.B=x=y"
        " --batches 2,4 --input-len 8-16 --output-len 5 --seed 3 --dtype bfloat16"
        " --threads 1 --max-model-len 64 --max-num-seqs 9 --rounds 7"
        " --max-foreign-cpus 0.5 --max-repeats 4 --quiet-wait 1 --timeout 9 --logs l"
    )  # fmt: skip
    assert cli.main(flags.split()) == 0
    (request,) = asked["requests"]
    assert request.backends == ("jengine", "vllm")
    assert request.pythons == {"vllm": "/opt/python"}
    assert request.engine_options == {"jengine": {"block_size": 32}}
    assert request.variables == {"vllm": {"A": "1", "B": "x=y"}}
    assert request.batches == (2, 4)
    assert (request.min_prompt_tokens, request.max_prompt_tokens) == (8, 16)
    assert (request.output_tokens, request.seed, request.dtype) == (5, 3, "bfloat16")
    assert (request.threads, request.max_model_len, request.max_num_seqs) == (1, 64, 9)
    assert request.patience.rounds == 7
    assert request.patience.max_foreign_cpus == 0.5
    assert request.patience.max_repeats == 4
    assert request.patience.quiet_wait_s == 1.0
    assert request.patience.start_s == request.patience.call_s == 9.0
    assert str(request.logs) == "l"


def test_json_file_and_status_of_a_failure(asked, tmp_path):
    asked["results"] = [result(error="out of memory")]
    path = tmp_path / "found.json"
    assert cli.main(["bench", "compare", "--model", "m", "--json", str(path)]) == 1
    (one,) = json.loads(path.read_text())
    assert one["output_tokens_per_s"] == [30.0]
    assert one["error"] == "out of memory"
    assert one["machine"]["cores"] >= 1


@pytest.mark.parametrize(
    "flags", ["--python vllm", "--batches 0", "--input-len 0-5", "--env =1"]
)
def test_bad_flags_are_refused(asked, flags, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "compare", "--model", "m", *flags.split()])
    assert ended.value.code == 2
    assert asked["requests"] == []
