import pytest

from jengine.core.plan import StepPlan
from jengine.display.sheets import sheet_of, shown_as_html, shown_as_text
from jengine.metrics import Counter, Gauge, Histogram, Metrics, RequestStateStats
from jengine.outputs import CompletionOutput, RequestOutput

EVIL = "<script>alert('$x$')</script> & \"quoted\""


class Printer:
    """What IPython hands over to be written to."""

    def __init__(self):
        self.written = ""

    def text(self, text):
        self.written += text


def output(**fields):
    one = CompletionOutput(
        0, EVIL, [5, 6], -1.25, finish_reason="stop", stop_reason="<b>"
    )
    return RequestOutput("7", EVIL, [1, 2, 3], [one], finished=True, **fields)


def test_an_output_says_what_was_asked_what_came_and_how_long_it_took():
    times = RequestStateStats(
        num_generation_tokens=3, queued_ts=1.0, first_token_ts=1.5, last_token_ts=2.0
    )
    text = str(output(num_cached_tokens=2, metrics=times))
    assert text.splitlines() == [
        "request 7: 3 prompt tokens, 2 of them cached, finished",
        f"  prompt    {EVIL}",
        f"  output 0  {EVIL}",
        "            [2 tokens; stop '<b>'; logprob -1.25]",
        "first token after 0.500 s, then 4.0 tokens/s",
    ]


def test_ids_stand_where_there_is_no_text():
    one = CompletionOutput(0, "", [5, 6])
    text = str(RequestOutput("7", None, [1, 2], [one], finished=False))
    assert "goes on" in text
    assert "[1, 2]" in text
    assert "[5, 6]" in text


def test_a_plan_has_a_line_for_each_row(play):
    run, _ = play({"A": [1, 2, 3, 4, 5], "B": [1, 2, 3, 4, 9]})
    first, second = map(str, run.plans[:2])
    assert first.splitlines() == [
        "step 0: 6 tokens in 2 rows, 1 of one token",
        "  request  seat  computed    runs  token ids  new blocks  then",
        "  B        1     4 (cached)  1     9          1 3         samples",
        "  A        0     0           5     1 2 3 4 5  1 2         samples",
    ]
    assert second.startswith("step 1: 2 tokens in 2 rows, 2 of one token")


def test_a_plan_names_who_left_and_shortens_what_is_long(play):
    run, _ = play({"A": list(range(14))})
    assert "0 1 2 3 4 5 ... 13" in str(run.plans[0])
    ends = StepPlan(3, run.plans[0].rows * 50, 0, 700, ("x", "y"), ("z",))
    text = str(ends)
    assert "finished before: x, y\npreempted before: z" in text
    assert "and 10 rows more" in text


def test_statistics_of_a_scheduler(play):
    _, scheduler = play({"A": [1, 2, 3, 4, 5], "B": [1, 2, 3, 4, 9]})
    text = str(scheduler.stats)
    assert "4 of 10 (40%)" in text
    assert "0 of 39 (0%)" in text


def test_metrics_are_a_table():
    labels = {"model_name": "folder/<model>", "engine": "0"}
    spread = Histogram("h", labels, 4, 9.0, {"1.0": 2, "5.0": 4, "+Inf": 4})
    found = Metrics(
        [
            Counter("c", {**labels, "reason": "stop"}, 12345),
            Gauge("g", labels, 0.25),
            spread,
            Histogram("empty", labels, 0, 0.0, {"+Inf": 0}),
        ]
    )
    assert [line.split() for line in str(found).splitlines()] == [
        ["metrics", "of", "<model>"],
        ["metric", "value", "mean", "median", "p99", "sum"],
        ["c", "stop", "12,345", "-", "-", "-", "-"],
        ["g", "0.25", "-", "-", "-", "-"],
        ["h", "4", "2.25", "1", "4.92", "9"],
        ["empty", "0", "-", "-", "-", "-"],
    ]
    assert "&lt;model&gt;" in found._repr_html_()


def test_what_an_engine_returns_shows_itself(make_engine):
    engine = make_engine()
    shown = [engine.get_metrics(), engine.stats, engine.cache]
    for value in shown:
        printer = Printer()
        value._repr_pretty_(printer, False)
        assert printer.written == str(value) == shown_as_text(value)
        assert value._repr_html_() == shown_as_html(value)


def test_no_text_of_an_output_becomes_markup():
    html = output()._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(&#x27;$x$&#x27;)&lt;/script&gt; &amp; " in html
    printer = Printer()
    output()._repr_pretty_(printer, False)
    assert printer.written == str(output())


def test_other_values_have_no_sheet():
    with pytest.raises(TypeError, match="no sheet shows a int"):
        sheet_of(3)
