"""Calls and streams of several threads, on a runner whose tokens are known."""

import concurrent.futures
import gc
import threading

import pytest

from jengine import RequestOutputKind, SamplingParams
from jengine.offline_loop import AskedRequest, OfflineLoop
from jengine.prompts import ParsedPrompt

DELTA, FINAL = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
LONG = 60  # seconds until a wait that never ends is called a failure


def ask(prompt, count=6, kind=DELTA):
    params = SamplingParams(temperature=0, max_tokens=count, output_kind=kind)
    return AskedRequest(ParsedPrompt(None, tuple(prompt)), prompt, params)


def ignore(_):
    pass


def ids(outputs):
    return [token for output in outputs for token in output.outputs[0].token_ids]


def is_idle(engine):
    engine.check_invariants()
    stats = engine.stats
    used = (stats.num_running, stats.num_waiting, stats.num_blocks_in_use)
    return used == (0, 0, 0) and not engine.has_unfinished_requests()


def run_threads(*works):
    """Run functions, each on a thread of its own; return what they return."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        calls = [pool.submit(work) for work in works]
        return [call.result(LONG) for call in calls]


class Amid:
    """Stops the first step of an engine, until it is left or told to go on."""

    def __init__(self, engine):
        self._step, self._engine = engine.runner.collect, engine
        self._reached, self._go_on = threading.Event(), threading.Event()
        engine.runner.collect = self._stop

    def _stop(self, *arguments):
        self._reached.set()
        assert self._go_on.wait(LONG)
        return self._step(*arguments)

    def __enter__(self):
        assert self._reached.wait(LONG)

    def __exit__(self, *_):
        self._go_on.set()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("num_blocks", [12, 60])
def test_threads_get_what_they_get_alone(make_engine, expected_ids, ahead, num_blocks):
    engine = make_engine(ahead=ahead, num_blocks=num_blocks)
    loop = OfflineLoop(engine)
    asked = [ask([i, 7, i + 3], 9, FINAL) for i in range(12)]
    want = [expected_ids(list(one.token_ids), one.params) for one in asked]

    def work(first):
        own = asked[first : first + 3]
        return [[ids([o]) for o in loop.run(own, ignore)] for _ in range(8)]

    found = run_threads(*(lambda i=i: work(i) for i in (0, 3, 6, 9)))
    assert found == [[want[i : i + 3]] * 8 for i in (0, 3, 6, 9)]
    assert is_idle(engine)


def test_threads_read_streams_while_another_runs_calls(make_engine, expected_ids):
    engine = make_engine()
    loop = OfflineLoop(engine)
    one, call = ask([1, 2, 3], 20), ask([4, 4], 9, FINAL)

    def read():
        return [ids(loop.stream(one)) for _ in range(10)]

    def run():
        return [ids(loop.run([call], ignore)) for _ in range(20)]

    first, second, calls = run_threads(read, read, run)
    assert first == second == [expected_ids([1, 2, 3], one.params)] * 10
    assert calls == [expected_ids([4, 4], call.params)] * 20
    assert is_idle(engine)


def test_a_half_read_stream_goes_on_during_another_threads_call(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    want = ids(loop.stream(ask([1, 2, 3], 9)))
    stream = loop.stream(ask([1, 2, 3], 9))
    seen = [next(stream)]
    run_threads(lambda: loop.run([ask([4, 4], 20, FINAL)], ignore))
    num_steps = engine.stats.num_steps
    seen += stream
    assert (ids(seen), engine.stats.num_steps) == (want, num_steps)
    assert is_idle(engine)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["step", "callback"])
def test_an_error_in_one_threads_call_hurts_no_other(
    make_engine, expected_ids, error, place
):
    engine = make_engine()
    loop = OfflineLoop(engine)
    one = ask([4, 4], 9, FINAL)
    collect, bad = engine.runner.collect, []

    def fail(*_):
        raise error

    def fail_on_the_bad_thread(*arguments):
        return (fail if threading.get_ident() in bad else collect)(*arguments)

    def work_badly():
        if place == "step":
            bad.append(threading.get_ident())
        for _ in range(10):
            with pytest.raises(error):
                loop.run([ask([1, 2], 3, FINAL)], fail)

    def work():
        return [ids(loop.run([one], ignore)) for _ in range(10)]

    engine.runner.collect = fail_on_the_bad_thread
    _, *found = run_threads(work_badly, work, work)
    assert found == [[expected_ids([4, 4], one.params)] * 10] * 2
    assert is_idle(engine)


def leave_open(loop, request):
    """Return a generator that closes a stream when it is closed itself."""

    def read():
        yield from loop.stream(request)

    outputs = read()
    next(outputs)
    return outputs


def drop_stream(loop):
    held = [loop.stream(ask([1, 2, 3], 20))]
    return held.clear


def close_stream(loop):
    return loop.stream(ask([1, 2, 3], 20)).close


def drop_generator(loop):
    held = [leave_open(loop, ask([1, 2, 3], 20))]
    held.append(held)
    it = [held]
    del held

    def collect():
        it.clear()
        gc.collect()

    return collect


@pytest.mark.parametrize("make_end", [drop_stream, close_stream, drop_generator])
def test_a_stream_that_ends_amid_another_threads_call_waits_for_nothing(
    make_engine, expected_ids, make_end
):
    engine = make_engine()
    loop = OfflineLoop(engine)
    end, one = make_end(loop), ask([4, 4], 6, FINAL)
    live, collect = [], engine.runner.collect

    def count_and_collect(*arguments):
        live.append(engine.get_num_unfinished_requests())
        return collect(*arguments)

    engine.runner.collect = count_and_collect
    amid = Amid(engine)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        call = pool.submit(loop.run, [one], ignore)
        with amid:
            pool.submit(end).result(LONG)
            assert not call.done()
        assert ids(call.result(LONG)) == expected_ids([4, 4], one.params)
    assert live[0] == 2
    assert live[2:] == [1] * len(live[2:])  # the call that went on ended it
    assert is_idle(engine)


def test_a_stream_closed_amid_a_step_of_its_own_thread_costs_no_step(make_engine):
    """As the garbage collector may do it to a generator that reads the stream."""
    engine = make_engine()
    loop = OfflineLoop(engine)
    (want,) = loop.run([ask([4, 4], 9, FINAL)], ignore)
    stream, collect = loop.stream(ask([1, 2, 3], 20)), engine.runner.collect
    resets, reset = [], engine.runner.reset

    def close_and_collect(*arguments):
        stream.close()
        return collect(*arguments)

    def note_and_reset():
        resets.append(True)
        reset()

    engine.runner.collect, engine.runner.reset = close_and_collect, note_and_reset
    (got,) = loop.run([ask([4, 4], 9, FINAL)], ignore)
    assert (ids([got]), resets) == (ids([want]), [])
    assert is_idle(engine)


def test_two_threads_share_one_stream(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    want = ids(loop.stream(ask([1, 2, 3], 40)))
    stream = loop.stream(ask([1, 2, 3], 40))
    found = run_threads(lambda: ids(stream), lambda: ids(stream))
    assert sorted(found[0] + found[1]) == sorted(want)
    assert is_idle(engine)
