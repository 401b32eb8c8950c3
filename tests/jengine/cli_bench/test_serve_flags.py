"""The command against an engine of this process, so that no server is needed."""

import contextlib
import json
import re
import types

import pytest

from jengine import AsyncLLM
from jengine.cli_bench import serve_target

SMALL = "serve --backend jengine --num-prompts 4 --input-len 4 --output-len 3"


def test_a_load_and_its_report(bench, capsys, tmp_path):
    status = bench(
        f"{SMALL} --ignore-eos --request-rate 200 --max-concurrency 2 --num-warmups 1"
        " --goodput ttft:1e9 e2el:1e9 --percentile-metrics ttft,e2el"
        f" --metric-percentiles 50,99 --save-result --save-detailed --disable-tqdm"
        f" --result-dir {tmp_path} --result-filename found.json --metadata who=me"
    )
    assert status == 0
    out = capsys.readouterr().out
    for line in (
        "Successful requests:                     4",
        "Maximum request concurrency:             2",
        "Request rate configured (RPS):           200.00",
        "Total input tokens:                      16",
        "Total generated tokens:                  12",
        "P50 TTFT (ms):",
        "Mean E2EL (ms):",
    ):
        assert line in out
    assert "ITL" not in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["request_goodput"] == pytest.approx(found["request_throughput"])
    assert (found["who"], found["request_rate"]) == ("me", 200.0)
    assert found["offered_rate"] == pytest.approx(200.0)
    assert found["output_lens"] == [3] * 4
    assert found["machine"]["cores"] >= 1


def test_results_are_added_line_by_line(bench, tmp_path):
    for _ in range(2):
        bench(f"{SMALL} --append-result --disable-tqdm --result-dir {tmp_path}")
    lines = (tmp_path / "jengine-infqps.json").read_text().splitlines()
    assert [json.loads(line)["request_rate"] for line in lines] == ["inf", "inf"]


def test_a_result_is_named_by_its_time(bench, tmp_path):
    bench(f"{SMALL} --save-result --disable-tqdm --result-dir {tmp_path}")
    (found,) = tmp_path.iterdir()
    assert re.fullmatch(r"jengine-infqps-\d{8}-\d{6}\.json", found.name)


def test_warm_ups_fill_no_cache_for_what_counts(bench, make_engine, monkeypatch):
    engine = make_engine(num_blocks=100)
    sent = []

    @contextlib.contextmanager
    def make(flags, *, is_async):
        with AsyncLLM.from_engine(engine) as llm:
            llm.config = types.SimpleNamespace(
                vocab_size=26,
                max_model_len=64,
                asked=types.SimpleNamespace(model="letters"),
            )
            add = engine.add_request
            engine.add_request = lambda *a, **k: (sent.append(a), add(*a, **k))[1]
            yield llm

    monkeypatch.setattr(serve_target, "make_llm", make)
    status = bench(
        "serve --backend jengine --num-prompts 4 --input-len 12 --output-len 3"
        " --num-warmups 3 --ready-check-timeout-sec 9 --disable-tqdm"
    )
    assert (status, len(sent)) == (0, 1 + 3 + 4)
    # The first warm-up is the one that the check of readiness sent.
    assert engine.stats.prefix_cache_hits == 8


def test_all_requests_failed(bench, capsys):
    status = bench(f"{SMALL} --disable-tqdm --top-p 0.5 --input-len 900")
    assert status == 1
    out, err = capsys.readouterr()
    assert out == ""  # no table of nothing
    assert "all 4 requests failed" in err
    assert "failed, 4 times: PromptError" in err


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--goodput itl:5", "NAME:MILLISECONDS"),
        ("--percentile-metrics ttft,x", "percentile_metrics is 'x'"),
        ("--request-rate -2", "rate is -2.0; allowed: above 0"),
        ("--burstiness 0", "burstiness is 0.0; allowed: above 0"),
        ("--ready-check-timeout-sec nan", "ready_check_timeout_sec is nan; allowed"),
        ("--ramp-up-strategy linear --ramp-up-start-rps 1", "both rates"),
        (
            "--dataset-path no.csv --ramp-up-strategy linear --ramp-up-start-rps 1"
            " --ramp-up-end-rps 2",
            "none, for a trace",
        ),
        ("--metric-percentiles 101", "101 is not from 0 to 100"),
        ("--save-result --result-dir no/such", "result_dir is 'no/such'"),
    ],
)
def test_bad_flags_are_one_line(bench, asked, capsys, flag, message):
    assert status_of(bench, f"{SMALL} {flag}") == 2
    assert message in capsys.readouterr().err
    assert asked == []  # nothing is loaded in vain


def status_of(bench, text):
    """The exit status, whether argparse or jengine refuses."""
    try:
        return bench(text)
    except SystemExit as ended:
        return ended.code
