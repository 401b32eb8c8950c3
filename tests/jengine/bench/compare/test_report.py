import json

from jengine.bench.compare.report import format_report, to_list
from jengine.bench.compare.result import BackendResult, Sample
from jengine.bench.machine import Machine

MACHINE = Machine(
    cpu="Some CPU",
    cores=2,
    memory_bytes=2**34,
    system="Linux",
    python="3.11.7",
    versions=(("jengine", "0.1"), ("jax", "0.10")),
    git_commit="0123456789abcdef+",
)


def result(backend, batch, rates, foreign=0.0, **fields):
    samples = tuple(Sample(tokens_per_s=r, foreign_cpus=foreign) for r in rates)
    return BackendResult(
        backend=backend,
        batch=batch,
        prompt_tokens=80,
        output_tokens=64,
        samples=samples,
        max_foreign_cpus=0.1,
        **fields,
    )


RESULTS = [
    result("jengine", 1, [30.0, 31.0, 29.0], version="0.1", init_s=1.25),
    result("vllm", 1, [15.0, 16.0, 14.0], same_tokens=0.75),
    result("llama-cpp", 1, [], error="not installed"),
    result(
        "jengine",
        8,
        [90.0],
        foreign=0.5,
        version="0.1",
        init_s=1.25,
        first_token_s=2.5,
        peak_rss_bytes=3 * 2**30,
    ),
    result("vllm", 8, [], error="out of memory", same_tokens=1.0),
    result("llama-cpp", 8, [], error="not installed"),
]


def test_the_tables():
    assert (
        format_report(RESULTS, MACHINE)
        == """\
Some CPU, 2 cores; Python 3.11.7, jengine 0.1, jax 0.10, commit 0123456789ab+

output tokens per second: median (least to most) of the rounds; * = others used the \
machine meanwhile
batch            jengine              vllm  llama-cpp  jengine / best other
-----  -----------------  ----------------  ---------  --------------------
1       30.0 (29.0-31.0)  15.0 (14.0-16.0)     failed                  2.00
8      90.0* (90.0-90.0)            failed     failed                     -

backend    version  loaded s  first token s  peak GiB  same ids
---------  -------  --------  -------------  --------  --------
jengine        0.1       1.2            2.5      3.00         -
vllm             -         -              -         -     75.0%
llama-cpp        -         -              -         -         -

llama-cpp failed: not installed

vllm failed: out of memory
"""
    )


def test_the_list():
    plain = json.loads(json.dumps(to_list(RESULTS, MACHINE)))
    assert [(one["backend"], one["batch"]) for one in plain] == [
        (one.backend, one.batch) for one in RESULTS
    ]
    assert plain[0]["output_tokens_per_s"] == [30.0, 31.0, 29.0]
    assert plain[2]["error"] == "not installed"
    assert {one["machine"]["git_commit"] for one in plain} == {"0123456789abcdef+"}
