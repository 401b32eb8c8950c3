from jengine.bench.gpu_check.table import format_report


def test_each_part_and_case_has_a_line():
    text = format_report(
        [
            {
                "name": "kernel",
                "title": "kernel against float64",
                "status": "failed",
                "seconds": 12.4,
                "cases": [
                    {"case": "decode", "status": "ok", "summary": "error 1e-6"},
                    {"case": "mixed", "status": "failed", "reason": "error nan"},
                ],
            },
            {
                "name": "tuning",
                "title": "tiles",
                "status": "skipped",
                "reason": "3 s left of --minutes",
                "cases": [],
            },
        ]
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:4] == [
        "kernel against float64 (kernel, 12 s) failed",
        "decode ok error 1e-6",
        "mixed failed error nan",
        "tiles (tuning) skipped: 3 s left of --minutes",
    ]
    assert "medians" in text
