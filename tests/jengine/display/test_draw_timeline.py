import dataclasses

import pytest

from jengine.display import timeline
from jengine.display.draw_timeline import Cell, timeline_cells
from jengine.errors import InvalidValueError


def shown_texts(picture):
    axes = picture.figure.axes[1]
    return [text.get_text() for text in axes.texts]


def legend(picture):
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


def test_cells_are_the_rows_of_the_plans(play):
    run, _ = play({"A": [1, 2, 3, 4, 5], "B": [1, 2, 3, 4, 8, 9]}, num_new_tokens=2)
    assert timeline_cells(run.plans) == [
        Cell("A", 0, 0, 5, 0, True, False),
        Cell("B", 1, 0, 2, 4, True, False),
        Cell("A", 0, 1, 1, 0, True, False),
        Cell("B", 1, 1, 1, 0, True, False),
    ]


def test_chunks_hits_and_preemptions_are_marked(play):
    prompts = {name: [ord(name)] * 9 for name in "AB"} | {"C": [65] * 8 + [1] * 12}
    run, scheduler = play(prompts, num_blocks=12, num_new_tokens=14)
    cells = timeline_cells(run.plans, by="request")
    assert scheduler.stats.num_preemptions == sum(c.is_preempted for c in cells) > 0
    for cell in cells:
        if cell.is_preempted:
            later = [c for c in cells if c.column > cell.column]
            assert cell.request_id in {c.request_id for c in later}
    picture = timeline(run, by="request", title="T")
    assert shown_texts(picture) == [
        f"{cell.num_tokens}" + (f"\n+{cell.num_cached}" if cell.num_cached else "")
        for cell in cells
    ]
    assert legend(picture) == [
        *(f"request {name}" for name in "ABC"),
        "several tokens",
        "one token",
        "found in the cache",
        "preempted then",
    ]
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_a_long_run_is_labelled_by_its_steps(play):
    run, _ = play({"a$x_$": [1, 2]}, num_new_tokens=70)
    late = dataclasses.replace(run, plans=run.plans[5:], results=run.results[5:])
    picture = timeline(late, by="request")
    below = picture.figure.axes[1]
    labels = [label.get_text() for label in below.get_xticklabels()]
    first = run.plans[5].step
    assert labels == [str(first + 2 * index) for index in range(len(labels))]
    assert 24 < len(labels) <= 48
    # A name with dollars is drawn as it is.
    assert [label.get_text() for label in below.get_yticklabels()] == [r"a\$x_\$"]
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_seats_are_lines_that_requests_hold_in_turn(play):
    run, _ = play({"A": [1], "B": [2], "C": [3]}, max_num_seqs=2, num_new_tokens=2)
    lines = {cell.request_id: cell.line for cell in timeline_cells(run.plans)}
    assert sorted(lines.values()) in ([0, 0, 1], [0, 1, 1])
    by_request = timeline_cells(run.plans, by="request")
    assert {cell.request_id: cell.line for cell in by_request} == {
        "A": 0,
        "B": 1,
        "C": 2,
    }


def test_numbers_are_left_out_where_they_would_overlap(play):
    run, _ = play({str(n): [n] for n in range(20)}, num_new_tokens=60)
    picture = timeline(run)
    assert shown_texts(picture) == []
    assert "request 0" not in legend(picture)  # there are too many


def test_what_cannot_be_drawn(play):
    run, _ = play({})
    with pytest.raises(InvalidValueError, match="at least one"):
        timeline(run)
    run, _ = play({"A": [1]})
    with pytest.raises(InvalidValueError, match="'seat' or 'request'"):
        timeline(run, by="row")
