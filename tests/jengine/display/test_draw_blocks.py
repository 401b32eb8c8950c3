import pytest

from jengine.core.request import Request
from jengine.display import block_map
from jengine.display.draw_blocks import _KEPT
from jengine.errors import InvalidValueError


def shown_texts(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def lines(picture):
    return [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]


def test_each_line_is_a_step_and_each_tile_names_its_owners(play):
    run, _ = play({"x": [1, 2, 3, 4, 5], "y": [1, 2, 3, 4, 9, 9]}, num_new_tokens=2)
    picture = block_map(run)
    assert lines(picture) == ["0", "1"]
    assert shown_texts(picture) == ["null", "x+y", "x", "y"] * 2
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_how_full_a_block_is(play):
    run, _ = play({"x": [1, 2, 3, 4, 5]}, num_new_tokens=1)
    bars = block_map(run).figure.axes[0].patches
    # A pale tile under each block, and what is held above it: 4 of 4 and 1 of 4.
    widths = [round(bar.get_width() / 0.9, 3) for bar in bars]
    assert widths == [1.0, 1.0, 1.0, 1.0, 0.25, 1.0]


def test_the_steps_that_are_asked_for_else_a_spread(play):
    run, _ = play({"x": [1]}, num_new_tokens=40)
    assert lines(block_map(run, steps=[3, 7])) == ["3", "7"]
    spread = lines(block_map(run))
    assert len(spread) == 16
    assert (spread[0], spread[-1]) == ("0", "39")
    with pytest.raises(InvalidValueError, match="at least one"):
        block_map(run, steps=[99])


def test_an_engine_a_scheduler_and_a_pool_as_they_stand(play, make_engine):
    _, scheduler = play({"x": [1, 2, 3, 4, 5]}, num_new_tokens=1)
    scheduler.add(Request("z", [7, 8], max_total_tokens=5))
    scheduler.schedule()
    for source in (scheduler, scheduler.cache):
        picture = block_map(source, title="T")
        assert lines(picture) == ["now"]
        assert shown_texts(picture) == ["null", "z"]
        colours = [bar.get_facecolor() for bar in picture.figure.axes[0].patches]
        grey = tuple(int(_KEPT[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert [c for c in colours if c[:3] == pytest.approx(grey)]
    assert lines(block_map(make_engine())) == ["now"]


def test_anything_else_is_refused():
    with pytest.raises(InvalidValueError, match="RecordedRun"):
        block_map(3)
