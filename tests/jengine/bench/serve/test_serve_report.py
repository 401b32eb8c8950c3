from jengine.bench.figures import Summary
from jengine.bench.serve.serve_report import format_serve_result
from jengine.bench.serve.serve_result import ServeResult

SUMMARY = Summary(0.1, 0.2, 0.3, ((50.0, 0.4), (99.9, 0.5)))
RESULT = ServeResult(
    duration=10.0,
    completed=20,
    failed=1,
    total_input=400,
    total_output=200,
    good=15,
    peak_output_rate=30,
    peak_concurrency=8,
    summaries=dict.fromkeys(("ttft", "tpot", "itl", "e2el"), SUMMARY),
)


def test_the_report():
    text = format_serve_result(
        RESULT, request_rate=2.5, max_concurrency=4, metrics=("ttft", "e2el")
    )
    assert (
        text
        == """\
============ Serving Benchmark Result ============
Successful requests:                     20
Failed requests:                         1
Maximum request concurrency:             4
Request rate configured (RPS):           2.50
Benchmark duration (s):                  10.00
Total input tokens:                      400
Total generated tokens:                  200
Request throughput (req/s):              2.00
Request goodput (req/s):                 1.50
Output token throughput (tok/s):         20.00
Peak output token throughput (tok/s):    30.00
Peak concurrent requests:                8.00
Total token throughput (tok/s):          60.00
---------------Time to First Token----------------
Mean TTFT (ms):                          100.00
Median TTFT (ms):                        200.00
P50 TTFT (ms):                           400.00
P99.9 TTFT (ms):                         500.00
----------------End-to-end Latency----------------
Mean E2EL (ms):                          100.00
Median E2EL (ms):                        200.00
P50 E2EL (ms):                           400.00
P99.9 E2EL (ms):                         500.00
=================================================="""
    )


def test_what_was_not_asked_is_not_shown():
    text = format_serve_result(RESULT, request_rate=float("inf"), max_concurrency=None)
    assert "Maximum request" not in text
    assert "configured" not in text
    for title in ("Time to First Token", "Output Token (excl.", "Inter-token Latency"):
        assert title in text
