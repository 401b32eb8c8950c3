"""Calls and streams that share one engine, on a runner whose tokens are known."""

import gc
import pathlib
import random
import subprocess
import sys
import threading

import pytest

import jengine.offline_loop
from jengine import RequestOutputKind, SamplingParams
from jengine.offline_loop import AskedRequest, LostRequestError, OfflineLoop
from jengine.prompts import ParsedPrompt

DELTA, FINAL = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
PACKAGE = str(pathlib.Path(jengine.offline_loop.__file__).parent)


def ask(prompt, count=6, kind=DELTA, **options):
    params = {"temperature": 0, "max_tokens": count, "output_kind": kind} | options
    return AskedRequest(
        ParsedPrompt(None, tuple(prompt)), prompt, SamplingParams(**params)
    )


def ignore(_):
    pass


def add_up(outputs):
    """What a reader of deltas has in the end."""
    parts = [output.outputs[0] for output in outputs]
    assert [output.finished for output in outputs][-1:] == [True]
    logprobs = [entry for part in parts for entry in part.logprobs or ()]
    return (
        "".join(part.text for part in parts),
        [token for part in parts for token in part.token_ids],
        logprobs if parts[-1].logprobs is not None else None,
        parts[-1].cumulative_logprob,
        (parts[-1].finish_reason, parts[-1].stop_reason),
    )


def is_idle(engine):
    engine.check_invariants()
    stats = engine.stats
    used = (stats.num_running, stats.num_waiting, stats.num_blocks_in_use)
    return used == (0, 0, 0) and not engine.has_unfinished_requests()


OPTIONS = [
    {},
    {"logprobs": 0},
    {"stop": ["q"]},
    {"stop": ["qx", "zzzz"], "include_stop_str_in_output": True},
    {"temperature": 1, "seed": 3, "logprobs": 0},
    {"stop_token_ids": [1, 2, 3, 4, 5, 6, 7]},
]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_deltas_add_up_to_the_whole(make_engine, ahead, options):
    loop = OfflineLoop(make_engine(ahead=ahead))
    (whole,) = loop.run([ask([1, 2, 3], 20, FINAL, **options)], ignore)
    outputs = list(loop.stream(ask([1, 2, 3], 20, **options)))
    assert add_up(outputs) == add_up([whole])
    assert len(outputs) == len(whole.outputs[0].token_ids)


def test_the_other_kinds_of_output(make_engine):
    loop = OfflineLoop(make_engine())
    (whole,) = loop.stream(ask([1, 2, 3], 5, FINAL))
    cumulative = list(loop.stream(ask([1, 2, 3], 5, RequestOutputKind.CUMULATIVE)))
    ids = whole.outputs[0].token_ids
    assert [o.outputs[0].token_ids for o in cumulative] == [
        ids[: i + 1] for i in range(5)
    ]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("num_blocks", [12, 60])
@pytest.mark.parametrize("seed", range(3))
def test_streams_in_turn_with_calls_in_between(make_engine, ahead, num_blocks, seed):
    rng = random.Random(seed)
    engine = make_engine(ahead=ahead, num_blocks=num_blocks)
    loop = OfflineLoop(engine)
    prompts = [[1, 2, 3], [4] * 9, [1, 2, 3, 5, 6]]
    want = [add_up(loop.run([ask(p, 12, FINAL)], ignore)) for p in prompts]
    streams = [loop.stream(ask(prompt, 12)) for prompt in prompts]
    found = [[] for _ in prompts]
    left = [*range(len(prompts))]
    while left:
        if rng.random() < 0.1:
            (output,) = loop.run([ask(prompts[0], 12, FINAL)], ignore)
            assert add_up([output]) == want[0]
        which = rng.choice(left)
        try:
            found[which].append(next(streams[which]))
        except StopIteration:
            left.remove(which)
    assert [add_up(outputs) for outputs in found] == want
    assert is_idle(engine)


def test_requests_run_together_from_the_start(make_engine):
    engine = make_engine(ahead=False)
    loop = OfflineLoop(engine)
    streams = [loop.stream(ask([i], 6)) for i in range(3)]
    for outputs in zip(*streams, strict=True):
        assert len(outputs) == 3
    assert engine.stats.num_steps == 6


def test_an_iterator_that_is_over_stays_over(make_engine):
    loop = OfflineLoop(make_engine())
    stream = loop.stream(ask([1], 2))
    assert iter(stream) is stream
    assert len(list(stream)) == 2
    assert list(stream) == []
    stream.close()
    assert list(stream) == []


def leave_by_close(stream):
    next(stream)
    stream.close()
    assert list(stream) == []


def leave_before_the_first(stream):
    stream.close()


def leave_by_break(stream):
    for _ in stream:
        break


def leave_by_an_error(stream):
    with pytest.raises(ZeroDivisionError):
        [1 // 0 for _ in stream]


@pytest.mark.parametrize("num_read", [0, 1, 3])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    "leave", [leave_by_close, leave_before_the_first, leave_by_break, leave_by_an_error]
)
def test_a_reader_who_leaves_ends_the_request(make_engine, leave, ahead, num_read):
    engine = make_engine(ahead=ahead)
    loop = OfflineLoop(engine)
    other = loop.stream(ask([4, 4], 9))
    stream = loop.stream(ask([1, 2, 3], 9))
    seen = [next(other)]
    for _ in range(num_read):
        next(stream)
    leave(stream)
    del stream
    assert engine.get_num_unfinished_requests() == 1
    seen += other
    (whole,) = loop.run([ask([4, 4], 9, FINAL)], ignore)
    assert add_up(seen) == add_up([whole])
    assert is_idle(engine)


def test_a_cycle_is_collected_with_its_request(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    cycle = [loop.stream(ask([1, 2, 3], 9))]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    assert not is_idle(engine)
    gc.collect()
    assert is_idle(engine)


@pytest.mark.parametrize("method", ["dispatch", "collect"])
def test_a_stream_dropped_amid_a_step_ends_with_the_next_call(make_engine, method):
    """As the garbage collector may do it."""
    engine = make_engine()
    loop = OfflineLoop(engine)
    (whole,) = loop.run([ask([4, 4], 9, FINAL)], ignore)
    dropped, other = [loop.stream(ask([1, 2, 3], 9))], loop.stream(ask([4, 4], 9))
    seen = [next(other), next(other)]
    call = getattr(engine.runner, method)

    def drop_and_call(*arguments, **options):
        dropped.clear()
        return call(*arguments, **options)

    setattr(engine.runner, method, drop_and_call)
    seen.append(next(other))
    assert not dropped
    assert engine.get_num_unfinished_requests() == 2
    seen.append(next(other))
    assert engine.get_num_unfinished_requests() == 1
    seen += other
    assert add_up(seen) == add_up([whole])
    assert is_idle(engine)


def test_a_stream_dropped_on_another_thread_ends_with_the_next_call(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    dropped = [loop.stream(ask([1, 2, 3], 9))]
    thread = threading.Thread(target=dropped.clear)
    thread.start()
    thread.join()
    assert engine.get_num_unfinished_requests() == 1
    assert list(loop.run([], ignore)) == []
    assert is_idle(engine)


def test_requests_of_others_are_left_to_them(make_engine, expected_ids):
    engine = make_engine()
    loop = OfflineLoop(engine)
    one = ask([4, 4], 9)
    engine.add_request("1", [4, 4], one.params)  # an id that would come next
    loop.run([ask([1, 2, 3], 3, FINAL)], ignore)
    next(loop.stream(ask([1, 2, 3], 9)))
    found = []
    while engine.has_unfinished_requests():
        found += engine.step()
    assert {output.request_id for output in found} == {"1"}
    ids = [token for output in found for token in output.outputs[0].token_ids]
    assert ids == expected_ids([4, 4], one.params)


@pytest.mark.parametrize("how", ["aborted", "taken"])
def test_a_stream_whose_outputs_are_lost_says_so(make_engine, how):
    engine = make_engine()
    loop = OfflineLoop(engine)
    stream = loop.stream(ask([1, 2, 3], 4))
    next(stream)
    if how == "aborted":
        engine.abort_request(stream.request_id)
    while engine.has_unfinished_requests():
        engine.step()
    with pytest.raises(LostRequestError, match=f"request {stream.request_id} is lost"):
        next(stream)
    assert list(stream) == []
    assert is_idle(engine)


def test_a_call_within_a_call_is_no_hang(make_engine):
    loop = OfflineLoop(make_engine())

    def call_again(_):
        loop.run([ask([1], 1, FINAL)], ignore)

    requests = [ask([2], 2, FINAL), ask([3], 5, FINAL)]
    with pytest.raises(LostRequestError):
        loop.run(requests, call_again)


def test_a_failing_step_ends_the_stream_that_asked_for_it(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    (whole,) = loop.run([ask([4, 4], 9, FINAL)], ignore)
    stream, other = loop.stream(ask([1, 2, 3], 9)), loop.stream(ask([4, 4], 9))
    seen = [next(other)]
    collect = engine.runner.collect

    def fail(_):
        engine.runner.collect = collect
        raise OSError("device lost")

    engine.runner.collect = fail
    with pytest.raises(OSError, match="device lost"):
        list(stream)
    assert list(stream) == []
    seen += other
    assert add_up(seen) == add_up([whole])
    assert is_idle(engine)


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that runs inside jengine."""

    def __init__(self, number):
        self.left, self.place = number, None

    def __enter__(self):
        sys.settrace(self.trace)

    def __exit__(self, kind, *_):
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def trace(self, frame, event, _argument):
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or "fake_runner" in file:
            return None
        if event == "line" and self.place is None:
            self.left -= 1
            if not self.left:
                self.place = f"{file}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.trace


def interrupted_reading(make_engine, number):
    """Read two streams in turn, the first one with an interrupt on the way."""
    engine = make_engine()
    loop = OfflineLoop(engine)
    stream, other = loop.stream(ask([1, 2, 3], 3)), loop.stream(ask([4, 4], 9))
    interrupt, seen = Interrupt(number), [next(other)]
    with interrupt:
        stream.close() if number % 2 else list(stream)
    seen.append(next(other))
    del stream
    (after,) = loop.run([ask([1, 2], 4, FINAL)], ignore)
    seen += other
    assert is_idle(engine), interrupt.place
    return interrupt.place, add_up(seen), add_up([after])


@pytest.mark.parametrize("first", [1, 42])
def test_an_interrupt_at_some_lines_costs_no_other_stream_a_token(make_engine, first):
    place, *want = interrupted_reading(make_engine, 10**9)
    assert place is None
    for number in range(first, 100_000, 83):
        place, *got = interrupted_reading(make_engine, number)
        assert got == want, place
        if place is None and number % 2 == 0:
            return
    raise AssertionError("more lines than numbers")


def test_ids_that_are_taken_are_passed_over(make_engine):
    engine = make_engine()
    loop = OfflineLoop(engine)
    engine.add_request("1", [1], ask([1]).params)
    assert [loop.stream(ask([2])).request_id for _ in range(3)] == ["0", "2", "3"]
    loop.run([], ignore)
    assert engine.get_num_unfinished_requests() == 1


@pytest.mark.parametrize("how", ["finished", "dropped"])
def test_the_id_of_a_stream_that_ended_is_free_for_others(make_engine, how):
    engine = make_engine()
    loop = OfflineLoop(engine)
    stream = loop.stream(ask([1], 3))
    request_id = stream.request_id
    next(stream) if how == "dropped" else list(stream)
    del stream
    engine.add_request(request_id, [1], ask([1]).params)
    loop.run([], ignore)
    assert engine.has_request(request_id)


def test_what_is_left_at_the_end_of_the_program_is_quiet():
    code = """
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.input_processor import EndTokens, InputLimits, InputProcessor
from jengine.offline_loop import AskedRequest, OfflineLoop
from jengine.output_processor import OutputProcessor
from jengine.prompts import ParsedPrompt
from jengine.sampling_params import SamplingParams
from jengine.testing.fake_runner import FakeRunner

sizes = dict(num_blocks=40, block_size=4, token_budget=16, max_num_seqs=5)
scheduler = Scheduler(**sizes)
inputs = InputProcessor(
    InputLimits(26, 64, scheduler.max_sequence_tokens, 5, seed=0),
    EndTokens(None, frozenset()), None,
)
engine = LLMEngine(scheduler, FakeRunner(**sizes), inputs, OutputProcessor(None))
params = SamplingParams(temperature=0, max_tokens=9)
request = AskedRequest(ParsedPrompt(None, (1,)), (1,), params)
stream = OfflineLoop(engine).stream(request)
print(len(next(stream).outputs))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
