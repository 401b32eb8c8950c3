"""An engine on a thread of its own; every wait ends by an event, none by a time."""

import gc
import queue
import threading
import weakref

import pytest

from jengine import SamplingParams
from jengine.engine_thread import EngineStoppedError, EngineThread
from jengine.errors import PromptError

LONG = 60  # seconds until a wait that never ends is called a failure
PARAMS = SamplingParams(temperature=0, max_tokens=5)


class Ears:
    """A listener that keeps what it is told."""

    def __init__(self):
        self.heard, self.threads = queue.SimpleQueue(), set()
        self.unread, self.live = [], ["a", "b"]

    def deliver(self, outputs):
        self.threads.add(threading.current_thread().name)
        for output in outputs:
            self.heard.put(output)
        return self.unread

    def fail(self, error):
        self.heard.put(error)
        return self.live


@pytest.fixture
def ears():
    return Ears()


@pytest.fixture
def start(make_engine, ears):
    threads = []

    def make(engine=None):
        threads.append(EngineThread(engine or make_engine(), ears))
        return threads[-1]

    yield make
    for thread in threads:
        thread.stop()


def add(name, prompt=(1, 2, 3)):
    return lambda engine: engine.add_request(name, list(prompt), PARAMS)


def until_finished(ears, *names):
    """Everything heard until these requests have finished."""
    found, left = [], {*names}
    while left:
        found.append(ears.heard.get(timeout=LONG))
        left -= {found[-1].request_id} if found[-1].finished else set()
    return found


def test_outputs_come_by_themselves(start, ears, expected_ids):
    thread = start()
    thread.call(add("a"))
    thread.call(add("b", [4]))
    found = until_finished(ears, "a", "b")
    ids = {output.request_id: output.outputs[0].token_ids for output in found}
    assert ids == {
        "a": expected_ids([1, 2, 3], PARAMS),
        "b": expected_ids([4], PARAMS),
    }
    assert ears.threads == {"jengine-engine"}


def test_a_call_has_a_result_or_an_error(start):
    thread = start()
    assert thread.call(lambda engine: engine.stats.num_running).result(LONG) == 0
    with pytest.raises(PromptError):
        thread.call(add("a", [])).result(LONG)
    with pytest.raises(KeyboardInterrupt):  # even this leaves the thread alive
        thread.call(lambda _: (_ for _ in ()).throw(KeyboardInterrupt)).result(LONG)
    names = thread.call(lambda _: threading.current_thread().name)
    assert names.result(LONG) == "jengine-engine"
    assert thread.failure is None


def test_calls_are_run_in_order_and_not_if_cancelled(start):
    thread, order, gate = start(), [], threading.Event()
    thread.call(lambda _: gate.wait(LONG))
    futures = [thread.call(lambda _, i=i: order.append(i)) for i in range(5)]
    assert futures[2].cancel()
    gate.set()
    futures[4].result(LONG)
    assert order == [0, 1, 3, 4]


def test_requests_that_nobody_reads_are_aborted(start, ears):
    ears.unread = ["a"]
    thread = start()
    thread.call(add("a"))
    ears.heard.get(timeout=LONG)
    left = thread.call(lambda engine: engine.get_num_unfinished_requests())
    assert left.result(LONG) == 0
    assert ears.heard.empty()


def test_an_idle_thread_sleeps(start, make_engine):
    engine, asked = make_engine(), []
    question = engine.has_unfinished_requests
    engine.has_unfinished_requests = lambda: asked.append(1) or question()
    thread = start(engine)
    thread.call(lambda _: None).result(LONG)
    before = len(asked)
    threading.Event().wait(0.2)  # a thread that looks around would do so now
    assert len(asked) - before <= 3


def break_off(runner, method, times=1):
    """Let the next calls of a runner's method fail."""
    original, left = getattr(runner, method), [times]

    def fail(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            setattr(runner, method, original)
        raise OSError("device lost")

    setattr(runner, method, fail)


@pytest.mark.parametrize("method", ["dispatch", "collect"])
def test_a_step_that_fails_fails_its_requests_and_no_later_ones(
    start, make_engine, ears, expected_ids, method
):
    engine = make_engine()
    break_off(engine.runner, method)
    thread = start(engine)
    both = lambda engine: (add("a")(engine), add("b")(engine))  # noqa: E731
    thread.call(both).result(LONG)
    assert str(ears.heard.get(timeout=LONG)) == "device lost"
    thread.call(add("c", [4]))
    found = until_finished(ears, "c")
    assert {output.request_id for output in found} == {"c"}
    assert found[-1].outputs[0].token_ids == expected_ids([4], PARAMS)
    stats = thread.call(lambda engine: engine.stats).result(LONG)
    assert (stats.num_running, stats.num_blocks_in_use) == (0, 0)


def test_an_engine_that_cannot_start_over_ends_the_thread(start, make_engine, ears):
    engine = make_engine()
    break_off(engine.runner, "dispatch", times=-1)
    break_off(engine.runner, "reset", times=-1)
    thread = start(engine)
    thread.call(add("a"))
    errors = [ears.heard.get(timeout=LONG) for _ in range(2)]
    assert [str(error) for error in errors] == ["device lost"] * 2
    with pytest.raises(EngineStoppedError, match="device lost") as caught:
        thread.call(add("b")).result(LONG)
    assert isinstance(caught.value.__cause__, OSError)
    assert str(thread.failure) == "device lost"


def test_a_listener_that_fails_ends_the_thread(start, ears):
    ears.deliver = lambda _: 1 // 0
    thread = start()
    thread.call(add("a"))
    assert isinstance(ears.heard.get(timeout=LONG), ZeroDivisionError)
    with pytest.raises(EngineStoppedError, match="zero"):
        thread.call(add("b")).result(LONG)


def test_stopping_ends_requests_and_refuses_calls(start, make_engine, ears):
    engine = make_engine()
    thread, gate = start(engine), threading.Event()
    thread.call(lambda _: gate.wait(LONG))
    last_call = thread.call(add("a"))
    stopper = threading.Thread(target=thread.stop)
    stopper.start()
    gate.set()
    stopper.join(LONG)
    assert not stopper.is_alive()
    last_call.result(LONG)
    heard = [ears.heard.get(timeout=LONG)]
    while not isinstance(heard[-1], EngineStoppedError):
        heard.append(ears.heard.get(timeout=LONG))
    assert not engine.has_unfinished_requests()
    with pytest.raises(EngineStoppedError, match="shut down"):
        thread.call(add("b")).result(LONG)
    thread.stop()
    assert isinstance(thread.failure, EngineStoppedError)


def test_stopping_from_within_is_no_hang(start):
    thread = start()
    thread.call(lambda _: thread.stop()).result(LONG)
    with pytest.raises(EngineStoppedError):
        thread.call(lambda _: None).result(LONG)


def test_calls_that_race_with_the_end_are_all_answered(start):
    for _ in range(20):
        thread, ready, futures = start(), threading.Barrier(2), []

        def keep_calling(thread=thread, ready=ready, futures=futures):
            ready.wait(LONG)
            futures += [thread.call(lambda _: 1) for _ in range(50)]

        caller = threading.Thread(target=keep_calling)
        caller.start()
        ready.wait(LONG)
        thread.stop()
        caller.join(LONG)
        results = [future.exception(LONG) for future in futures]
        assert len(results) == 50
        assert {type(result) for result in results} <= {type(None), EngineStoppedError}


def test_nothing_of_a_call_is_kept(start):
    class Mark:
        pass

    thread, mark = start(), Mark()
    ref = weakref.ref(mark)
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda _, mark=mark: 1 // 0).result(LONG)
    del mark
    thread.call(lambda _: None).result(LONG)
    gc.collect()
    assert ref() is None
