"""How requests of an `AsyncLLM` end before their time, and how the engine does."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading

import pytest

from jengine import AsyncLLM, RequestOutputKind, SamplingParams
from jengine.engine_thread import EngineStoppedError

LONG = 60  # seconds until a wait that never ends is called a failure
DELTA = RequestOutputKind.DELTA
KINDS = list(RequestOutputKind)


def greedy(count=6, **options):
    return SamplingParams(temperature=0, max_tokens=count, **options)


async def is_idle(llm):
    stats = await llm.get_stats()
    return (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (0, 0, 0)


async def collect(outputs):
    return [output async for output in outputs]


def final_ids(outputs):
    """The ids that a reader has in the end, whatever kind of outputs it got."""
    ids = []
    for output in outputs:
        ids += output.outputs[0].token_ids
    assert [output.finished for output in outputs][-1:] == [True]
    return ids


async def begin(gate, llm, outputs):
    """Read the first output, which the gate lets through."""
    reading = asyncio.ensure_future(anext(outputs))
    await asyncio.sleep(0)  # so that the request is on its way
    await gate.let(llm, 2)
    return await reading


async def cancel(outputs):
    task = asyncio.create_task(collect(outputs))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def close(outputs):
    await outputs.aclose()


async def break_off(outputs):
    async with contextlib.aclosing(outputs):
        pass


async def drop(outputs):
    await asyncio.sleep(0)


@pytest.mark.parametrize("leave", [cancel, close, break_off, drop])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_reader_who_leaves_ends_the_request(
    serve, make_engine, make_gate, expected_ids, leave, ahead
):
    engine = make_engine(ahead=ahead)
    gate, llm = make_gate(engine), serve(engine)

    async def main():
        params = greedy(20, output_kind=DELTA)
        other = await llm.add_request("other", [4, 4], params)
        outputs = llm.generate([1, 2, 3], greedy(40))
        await begin(gate, llm, outputs)
        assert (await llm.get_stats()).num_running == 2
        await leave(outputs)
        del outputs
        gc.collect()
        for _ in range(3):  # the loop itself closes what was dropped
            await asyncio.sleep(0)
        assert (await llm.get_stats()).num_running == 1
        await gate.open(llm)
        assert final_ids(await collect(other)) == expected_ids([4, 4], greedy(20))
        assert await is_idle(llm)

    asyncio.run(main())


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_reader_who_is_cancelled_while_the_request_is_added(
    serve, make_engine, make_gate, is_begun
):
    engine = make_engine()
    gate, begun, go_on = make_gate(engine), threading.Event(), threading.Event()
    add_request = engine.add_request

    def wait_and_add(*arguments, **options):
        begun.set()
        assert go_on.wait(LONG)
        add_request(*arguments, **options)

    engine.add_request = wait_and_add
    llm = serve(engine)

    async def main():
        if not is_begun:
            llm._thread.call(lambda _: go_on.wait(LONG))
        task = asyncio.create_task(collect(llm.generate([1], greedy(), "a")))
        await asyncio.sleep(0)
        if is_begun:
            await asyncio.to_thread(begun.wait, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await task
        go_on.set()
        assert await is_idle(llm)
        assert begun.is_set() is is_begun
        await gate.open(llm)
        assert (await collect(llm.generate([1], greedy(), "a")))[-1].finished
        assert kept.value is not None  # its traceback holds on to much

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "drop"])
def test_an_added_request_lives_as_long_as_its_stream(
    serve, make_engine, make_gate, how
):
    engine = make_engine()
    gate, llm = make_gate(engine), serve(engine)

    async def main():
        stream = await llm.add_request("mine", [1, 2, 3], greedy(40))
        assert (await begin(gate, llm, stream)).request_id == "mine"
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reading.cancel()  # which is not to leave
        await asyncio.wait([reading])
        await begin(gate, llm, stream)
        assert (await llm.get_stats()).num_running == 1
        if how == "close":
            stream.close()
        else:
            del stream, reading
            gc.collect()
        assert (await llm.get_stats()).num_running == 0

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_request_ends_with_what_there_is(
    serve, make_engine, make_gate, expected_ids, kind
):
    engine = make_engine(ahead=False)
    gate, llm = make_gate(engine), serve(engine)

    async def main():
        first = await llm.add_request("a", [1, 2, 3], greedy(9, output_kind=kind))
        other = await llm.add_request("b", [4, 4], greedy(2, output_kind=DELTA))
        await gate.let(llm, 2)
        assert len(final_ids(await collect(other))) == 2
        await llm.abort(["a", "unknown"])
        outputs = await collect(first)
        assert outputs[-1].outputs[0].finish_reason == "abort"
        ids = final_ids(outputs if kind is DELTA else outputs[-1:])
        assert ids == expected_ids([1, 2, 3], greedy(2))
        await llm.abort("a")
        assert await is_idle(llm)

    asyncio.run(main())


def test_an_engine_failure_reaches_all_and_ends_nothing_else(
    serve, make_engine, make_gate, expected_ids
):
    engine = make_engine()
    gate, collect_step = make_gate(engine), engine.runner.collect

    def fail(_):
        engine.runner.collect = collect_step
        raise OSError("device lost")

    engine.runner.collect = fail
    llm = serve(engine)

    async def main():
        streams = [await llm.add_request(name, [1, 2], greedy()) for name in "abc"]
        await gate.open(llm)
        for stream in streams:
            with pytest.raises(EngineStoppedError, match="device lost") as caught:
                await collect(stream)
            assert isinstance(caught.value.__cause__, OSError)
        await llm.check_health()
        params = greedy(output_kind=DELTA)
        ids = final_ids(await collect(llm.generate([4], params)))
        assert ids == expected_ids([4], greedy())

    asyncio.run(main())


def test_a_dead_engine_is_no_hang(make_engine):
    def fail(*_, **__):
        raise OSError("device lost")

    engine = make_engine()
    engine.runner.dispatch = engine.runner.reset = fail

    async def main():
        with AsyncLLM.from_engine(engine) as llm:
            assert (llm.is_running, llm.errored) == (True, False)
            for _ in range(2):
                with pytest.raises(EngineStoppedError, match="device lost"):
                    await collect(llm.generate([1], greedy()))
            assert (llm.is_running, llm.errored) == (False, True)
            with pytest.raises(EngineStoppedError, match="device lost"):
                await llm.check_health()

    asyncio.run(main())


def test_shutting_down_reaches_all_who_wait(make_engine, make_gate):
    engine = make_engine(seqs=1)
    gate, llm = make_gate(engine), AsyncLLM.from_engine(engine)

    async def main():
        tasks = [
            asyncio.create_task(collect(llm.generate([i], greedy(40))))
            for i in range(3)
        ]
        await asyncio.sleep(0)
        await gate.let(llm, 5)
        await asyncio.to_thread(llm.shutdown)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [EngineStoppedError] * 3
        with pytest.raises(EngineStoppedError, match="shut down"):
            await collect(llm.generate([1], greedy()))

    assert llm.is_running
    asyncio.run(main())
    assert (llm.is_running, llm.errored) == (False, True)
    llm.shutdown()
    assert engine.get_num_unfinished_requests() == 0
    assert not llm._thread._thread.is_alive()


def test_a_loop_that_has_closed_takes_its_requests_with_it(
    serve, make_engine, make_gate, expected_ids
):
    engine = make_engine()
    gate, llm = make_gate(engine), serve(engine)
    kept = []

    async def leave():
        kept.append(await llm.add_request("kept", [1, 2, 3], greedy(40)))
        kept.append(llm.generate([1, 2], greedy(40)))
        await begin(gate, llm, kept[1])  # this one is closed with the loop

    async def main():
        assert (await llm.get_stats()).num_running == 1
        await gate.open(llm)
        ids = final_ids(await collect(llm.generate([4], greedy(9, output_kind=DELTA))))
        assert ids == expected_ids([4], greedy(9))
        assert await is_idle(llm)

    asyncio.run(leave())
    asyncio.run(main())


def test_an_engine_that_nobody_uses_stops_by_itself(make_engine):
    llm = AsyncLLM.from_engine(make_engine())
    thread = llm._thread._thread
    del llm
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_program_that_forgets_to_shut_down_ends_all_the_same(alphabet_dir):
    code = f"""
import asyncio
from jengine import AsyncLLM, SamplingParams

llm = AsyncLLM({str(alphabet_dir)!r}, max_model_len=64, num_gpu_blocks_override=20)

async def main():
    stream = await llm.add_request("a", "a", SamplingParams(max_tokens=60))
    print((await anext(stream)).outputs[0].text[:1])
    return stream

stream = asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.returncode) == ("b\n", 0), done.stderr
    assert "Traceback" not in done.stderr
