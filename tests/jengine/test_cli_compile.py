import json
import re

import pytest

from jengine import cli, cli_compile
from jengine.aot.facts import KernelFacts, ProgramFacts
from jengine.aot.request import Job
from jengine.aot.supervisor import Findings, SurveyError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
KERNEL = KernelFacts(
    name="paged_attention_decode",
    registers=96,
    spill_bytes=0,
    shared_bytes=72192,
    instructions={"mma.sync": 64},
)
FACTS = ProgramFacts(
    layers=5,
    compile_s=2.0,
    argument_bytes=100,
    output_bytes=50,
    temp_bytes=10,
    aliased_bytes=50,
    kv_copies=0,
    launches=75,
    launches_per_layer=14,
    collectives={},
    kernels=(KERNEL,),
)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def asked(monkeypatch):
    """What the command asks of the worker, which finds the same of each program."""
    from jengine.aot.overview import describe_survey
    from jengine.aot.survey import plan_survey

    requests = []

    def survey(request, environment, progress):
        requests.append((request, environment))
        described = describe_survey(plan_survey(request)) | {"jax": "0.11.2"}
        found = Findings(survey=described)
        found.jobs = [Job(n, True) for n in range(len(described["programs"]))]
        found.facts = dict.fromkeys(found.jobs, FACTS)
        progress(found)
        return found

    monkeypatch.setattr(cli_compile, "run_survey", survey)
    return requests


def run(*arguments):
    return cli.main(["compile", *map(str, arguments)])


def test_the_table_goes_to_stdout_and_progress_to_stderr(folder, asked, capsys):
    assert run("--model", folder, "--target", "h200", "--max-num-seqs", 2) == 0
    out, err = capsys.readouterr()
    assert f"{folder} on h200 (NVIDIA H200), bfloat16, pallas attention" in out
    rows = [line for line in out.splitlines() if line.startswith("decode_r2_")]
    assert len(rows) == 4
    assert rows[0].split()[5:10] == ["0", "75", "14", "96", "0"]
    assert "KV cache:" in out
    assert err.startswith("compiled ")


def test_flags_become_a_request(folder, asked, monkeypatch):
    monkeypatch.setenv("SOME_VARIABLE", "1")
    flags = ["--tensor-parallel-size", 2, "--layers", 4, "--context", 1000]
    run("--model", folder, "--target", "A100", *flags, "--dtype", "float16")
    ((request, environment),) = asked
    assert request.target == "a100-80g"
    assert request.config == CONFIG
    assert (request.tensor_parallel_size, request.layers, request.context) == (
        2,
        4,
        1000,
    )
    assert request.options == {"dtype": "float16"}
    assert environment["SOME_VARIABLE"] == "1"


def test_a_path_of_a_config_will_do(folder, asked):
    assert run("--model", folder / "config.json", "--target", "l4") == 0
    assert asked[0][0].config == CONFIG


@pytest.mark.parametrize(
    ("flags", "layers", "all_sizes"),
    [
        ([], 3, False),
        (["--layers", "all"], None, False),
        (["--sizes", "all"], 3, True),
        (["--save", "somewhere"], None, True),
    ],
)
def test_what_is_saved_is_whole(folder, asked, flags, layers, all_sizes):
    run("--model", folder, "--target", "h200", *flags)
    assert (asked[0][0].layers, asked[0][0].all_sizes) == (layers, all_sizes)


def test_everything_found_is_written_as_json(folder, asked, tmp_path):
    path = tmp_path / "found.json"
    run("--model", folder, "--target", "h200", "--json", path)
    written = json.loads(path.read_text())
    assert {"target", "model", "kv_blocks", "programs"} <= set(written)
    assert set(written["programs"][0]) >= {
        *("name", "kind", "tokens", "rows", "compile_s", "argument_bytes"),
        *("temp_bytes", "aliased_bytes", "kv_bytes", "kv_copies", "launches"),
        *("launches_per_layer", "kernels", "bytes_moved", "flops", "roofline_ms"),
    }
    assert set(written["programs"][0]["kernels"][0]) == {
        *("name", "registers", "spill_bytes", "shared_bytes", "instructions"),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "tpu"], "target is 'tpu'; allowed: .*h200"),
        (["--target", "h200", "--max-num-seqs", "0"], "max_num_seqs is 0"),
        (["--target", "h200", "--layers", "1"], "use 2"),
        (["--target", "h200", "--context", "0"], "0 is less than 1"),
        (["--target", "h200", "--layers", "few"], "'few' is no whole number"),
        (["--target", "h200", "--json", "no-such-folder/x"], "--json is 'no-such-fo"),
        (["--target", "h200", "--json", "."], "--json is '.'; allowed: a file"),
        ([], "--target"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(folder, asked, capsys, arguments, message):
    try:
        status = run("--model", folder, *arguments)
    except SystemExit as error:
        status = error.code
    assert status == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("jengine: error: ")
    assert re.search(message, err)
    assert asked == []


def test_no_such_model_is_one_line_and_exit_2(tmp_path, asked, capsys):
    assert run("--model", tmp_path, "--target", "h200") == 2
    assert "config.json is missing" in capsys.readouterr().err


def test_a_refusal_of_the_worker_is_one_line_and_exit_2(folder, monkeypatch, capsys):
    def refuse(*_):
        raise SurveyError("compiling for a GPU needs jax's CUDA plugin")

    monkeypatch.setattr(cli_compile, "run_survey", refuse)
    assert run("--model", folder, "--target", "h200") == 2
    err = capsys.readouterr().err
    assert err == "jengine: error: compiling for a GPU needs jax's CUDA plugin\n"


def test_a_program_that_needs_too_much_is_exit_2_with_numbers(
    folder, asked, capsys, monkeypatch
):
    huge = {"temp_bytes": 200 * 2**30}
    monkeypatch.setattr(
        ProgramFacts, "own_bytes", property(lambda _: huge["temp_bytes"])
    )
    assert run("--model", folder, "--target", "h200") == 2
    out, err = capsys.readouterr()
    assert "decode_r2_" in out  # what was found is shown all the same
    assert "allowed: at most 141.0 GiB on h200" in err


def test_a_program_that_cannot_be_compiled_is_exit_1(
    folder, monkeypatch, asked, capsys
):
    survey = cli_compile.run_survey

    def one_fails(*arguments):
        found = survey(*arguments)
        job = found.jobs[0]
        del found.facts[job]
        found.failures[job] = "the compiler crashed"
        return found

    monkeypatch.setattr(cli_compile, "run_survey", one_fails)
    assert run("--model", folder, "--target", "h200") == 1
    assert "FAILED: the compiler crashed" in capsys.readouterr().out


def test_help_names_the_cards(capsys):
    with pytest.raises(SystemExit):
        run("--help")
    assert "h200" in capsys.readouterr().out
