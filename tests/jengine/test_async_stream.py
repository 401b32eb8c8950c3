"""Outputs on their way from a thread to event loops, without an engine."""

import asyncio
import gc
import weakref

import pytest

from jengine import SamplingParams
from jengine.async_stream import OutputStream, Reader, Switchboard
from jengine.engine_thread import EngineStoppedError
from jengine.outputs import CompletionOutput, RequestOutput


def delta(token, *, finished=False, request_id="a"):
    completion = CompletionOutput(0, chr(97 + token), [token])
    return RequestOutput(request_id, None, [1], [completion], finished=finished)


def make_reader(name, *, has_deltas=True):
    stream = OutputStream(name, has_deltas=has_deltas)
    return stream, Reader(asyncio.get_running_loop(), weakref.ref(stream))


def test_what_comes_while_nobody_reads_is_merged():
    async def main():
        stream = OutputStream("a", has_deltas=True)
        stream.put(delta(0))
        assert (await anext(stream)).outputs[0].token_ids == [0]
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for token in (1, 2):
            stream.put(delta(token))
        assert (await waiting).outputs[0].text == "bc"
        stream.put(delta(3))
        stream.put(delta(4, finished=True))
        (last,) = [output async for output in stream]
        assert (last.outputs[0].token_ids, last.finished) == ([3, 4], True)
        assert [output async for output in stream] == []

    asyncio.run(main())


def test_a_cumulative_output_replaces_the_one_before():
    async def main():
        stream = OutputStream("a", has_deltas=False)
        for token in (1, 2):
            stream.put(delta(token))
        assert (await anext(stream)).outputs[0].token_ids == [2]

    asyncio.run(main())


def test_a_cancelled_reader_loses_nothing():
    async def main():
        stream = OutputStream("a", has_deltas=True)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        stream.put(delta(1))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await anext(stream)).outputs[0].token_ids == [1]

    asyncio.run(main())


def test_an_error_comes_after_what_came_before_it():
    async def main():
        stream = OutputStream("a", has_deltas=True)
        stream.put(delta(1))
        stream.put(OSError("device lost"))
        assert (await anext(stream)).outputs[0].token_ids == [1]
        with pytest.raises(EngineStoppedError, match="device lost") as caught:
            await anext(stream)
        assert isinstance(caught.value.__cause__, OSError)
        assert [output async for output in stream] == []

    asyncio.run(main())


@pytest.mark.parametrize("how", ["closed", "dropped", "finished", "failed"])
def test_a_stream_that_is_left_is_released_once(how):
    async def main():
        released = []
        stream = OutputStream("a", has_deltas=True)
        stream.ends_with(lambda: released.append(1))
        if how == "closed":
            stream.close()
            stream.close()
            assert [output async for output in stream] == []
        elif how in ("finished", "failed"):
            stream.put(delta(1, finished=True) if how == "finished" else OSError())
            await asyncio.wait([asyncio.ensure_future(anext(stream))])
            stream.close()
        del stream
        gc.collect()
        assert len(released) == (how in ("closed", "dropped"))

    asyncio.run(main())


def test_each_reader_gets_its_own_outputs():
    async def main():
        board = Switchboard()
        one, one_reader = make_reader("a")
        other, other_reader = make_reader("b")
        board.connect("a", one_reader)
        board.connect("b", other_reader)
        news = [delta(1), delta(2, request_id="b"), delta(3), delta(4, request_id="x")]
        assert board.deliver(news) == []
        assert (await anext(one)).outputs[0].token_ids == [1, 3]
        assert (await anext(other)).outputs[0].token_ids == [2]
        board.deliver([delta(5, finished=True)])
        assert board.fail(OSError("lost")) == ["b"]
        assert (await anext(one)).finished
        with pytest.raises(EngineStoppedError):
            await anext(other)
        assert board.fail(OSError("lost")) == []

    asyncio.run(main())


@pytest.fixture
def engine(make_engine):
    """An engine with the requests "a" and "x"."""
    engine = make_engine()
    for name in "ax":
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=9))
    return engine


def test_a_release_ends_only_the_readers_own_request(engine):
    async def main():
        board = Switchboard()
        _, reader = make_reader("a")
        _, other = make_reader("a")
        board.release(engine, "a", reader)  # not connected
        board.connect("a", other)
        board.release(engine, "a", reader)
        assert engine.has_request("a")
        board.release(engine, "a", other)
        assert not engine.has_request("a")
        board.release(engine, "a", other)
        assert board.fail(OSError()) == []
        assert engine.has_request("x")

    asyncio.run(main())


def test_an_abort_is_told_to_the_reader(engine):
    async def main():
        board = Switchboard()
        stream, reader = make_reader("a")
        board.connect("a", reader)
        board.abort(engine, ["x", "a"])  # x is somebody else's
        assert (engine.has_request("a"), engine.has_request("x")) == (False, True)
        last = await anext(stream)
        assert (last.finished, last.outputs[0].finish_reason) == (True, "abort")
        assert board.fail(OSError()) == []

    asyncio.run(main())


def test_readers_on_a_closed_loop_are_given_up():
    async def connect(board, name):
        stream, reader = make_reader(name)
        board.connect(name, reader)
        return stream

    board = Switchboard()
    kept = [asyncio.run(connect(board, name)) for name in "ab"]
    assert board.deliver([delta(1)]) == ["a"]

    async def main():
        kept.append(await connect(board, "c"))
        assert board.deliver([delta(2, request_id=name) for name in "bc"]) == ["b"]
        assert (await anext(kept[2])).outputs[0].token_ids == [2]

    asyncio.run(main())


def test_outputs_for_a_dropped_stream_go_nowhere():
    async def main():
        board = Switchboard()
        stream, reader = make_reader("a")
        board.connect("a", reader)
        del stream
        gc.collect()
        assert board.deliver([delta(1)]) == []
        await asyncio.sleep(0)

    asyncio.run(main())


def test_closing_wakes_who_waits():
    async def main():
        stream = OutputStream("a", has_deltas=True)
        waiting = [asyncio.ensure_future(anext(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        stream.close()
        ended = await asyncio.wait_for(
            asyncio.gather(*waiting, return_exceptions=True), 60
        )
        assert [type(one) for one in ended] == [StopAsyncIteration] * 2

    asyncio.run(main())


def test_another_event_loop_is_told_so():
    async def make():
        return OutputStream("a", has_deltas=True)

    async def read(stream):
        with pytest.raises(RuntimeError, match="request a was added on another"):
            await asyncio.wait_for(anext(stream), 60)

    asyncio.run(read(asyncio.run(make())))
