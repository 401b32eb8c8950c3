import re
import time

import pytest

from jengine.outputs import CompletionOutput, RequestOutput
from jengine.progress import Progress


class Bar:
    """What `tqdm` is asked for, and no more."""

    def __init__(self, **options):
        self.options, self.updates, self.closed = options, 0, False
        self.format_dict = {"elapsed": 2.0}
        self.postfix = ""

    def update(self, count):
        self.updates += count

    def set_postfix_str(self, text, *, refresh):
        self.postfix = text

    def close(self):
        self.closed = True


class Counter:
    """The least that can be counted with."""

    def __init__(self, **_):
        self.count, self.closed = 0, False

    def update(self, count):
        self.count += count

    def close(self):
        self.closed = True


def output(*token_ids):
    completion = CompletionOutput(0, "", list(token_ids))
    return RequestOutput("0", None, [1], [completion], finished=True)


def test_a_callable_makes_the_bar():
    made = []
    progress = Progress(lambda **options: made.append(Bar(**options)) or made[0], 2)
    (bar,) = made
    assert (bar.options["total"], bar.options["desc"]) == (2, "Processed prompts")
    progress.advance(output(1, 2))
    assert (bar.updates, bar.postfix) == (1, "output: 1.0 tokens/s")
    progress.advance(output(3, 4, 5))
    assert (bar.updates, bar.postfix) == (2, "output: 2.5 tokens/s")
    assert not bar.closed
    progress.close()
    assert bar.closed


def test_no_rate_before_any_time_has_passed():
    bar = Bar()
    bar.format_dict["elapsed"] = 0
    Progress(lambda **_: bar, 1).advance(output(1))
    assert (bar.updates, bar.postfix) == (1, "")


def test_an_object_that_only_counts():
    counter = Counter()
    progress = Progress(lambda **_: counter, 1)
    progress.advance(output(1))
    progress.close()
    assert (counter.count, counter.closed) == (1, True)


class Unclocked(Counter):
    """Shows a text, but does not measure time."""

    postfix = ""

    def set_postfix_str(self, text, *, refresh):
        self.postfix = text


def test_a_bar_without_a_clock_shows_the_rate_by_ours():
    bar = Unclocked()
    progress = Progress(lambda **_: bar, 1)
    time.sleep(0.01)
    progress.advance(output(1))
    assert bar.count == 1
    assert re.fullmatch(r"output: \d+\.\d tokens/s", bar.postfix)


class Strange(Counter):
    """Has what a bar has, in other forms."""

    format_dict = None

    def set_postfix_str(self):
        raise AssertionError


def test_a_bar_that_cannot_show_the_rate_counts_all_the_same():
    bar = Strange()
    progress = Progress(lambda **_: bar, 2)
    progress.advance(output(1))
    progress.advance(output(2))
    progress.close()
    assert (bar.count, bar.closed) == (2, True)


@pytest.mark.parametrize("use_tqdm", [True, False])
def test_tqdm_or_nothing_on_standard_error(capsys, use_tqdm):
    progress = Progress(use_tqdm, 1)
    progress.advance(output(1))
    progress.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert ("1/1" in err) is use_tqdm
    assert (err == "") is not use_tqdm
