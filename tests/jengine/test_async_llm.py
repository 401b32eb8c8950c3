"""`AsyncLLM`; where timing matters, a gate decides which steps the engine may run."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading

import pytest

from jengine import AsyncLLM, RequestOutputKind, SamplingParams
from jengine.engine_thread import EngineStoppedError
from jengine.errors import (
    ChatTemplateError,
    InvalidValueError,
    PromptError,
    SamplingParamsError,
    UnsupportedError,
)

LONG = 60  # seconds until a wait that never ends is called a failure
DELTA = RequestOutputKind.DELTA
KINDS = list(RequestOutputKind)


def greedy(count=6, **options):
    return SamplingParams(temperature=0, max_tokens=count, **options)


class Gate:
    """Lets an engine run only as many steps as it is told."""

    def __init__(self, engine):
        self._permits = 0
        step, is_unfinished = engine.step, engine.has_unfinished_requests

        def use_and_step():
            self._permits -= 1
            return step()

        engine.step = use_and_step
        engine.has_unfinished_requests = lambda: self._permits > 0 and is_unfinished()

    async def let(self, llm, steps):
        """Allow some steps more, from here on."""

        def add(_):
            self._permits += steps

        await asyncio.wrap_future(llm._thread.call(add))

    async def open(self, llm):
        await self.let(llm, 10**9)


@pytest.fixture
def serve(make_engine):
    """Starts engines, and has a look at them when the test is over."""
    with contextlib.ExitStack() as stack:

        def start(engine=None):
            engine = engine or make_engine()
            stack.callback(check_idle, engine)
            return stack.enter_context(AsyncLLM.from_engine(engine))

        yield start


def check_idle(engine):
    assert engine.get_num_unfinished_requests() == 0
    engine.check_invariants()
    assert engine.stats.num_blocks_in_use == 0


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


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_many_requests_at_a_time(serve, make_engine, expected_ids, kind, ahead):
    llm = serve(make_engine(ahead=ahead, num_blocks=20))
    prompts = [[i % 26, 3, 5][: 1 + i % 3] for i in range(30)]
    params = [greedy(1 + i % 9, output_kind=kind) for i in range(30)]

    async def main():
        requests = zip(prompts, params, strict=True)
        return await asyncio.gather(*(collect(llm.generate(*one)) for one in requests))

    found = asyncio.run(main())
    for prompt, one, outputs in zip(prompts, params, found, strict=True):
        ids = final_ids(outputs if kind is DELTA else outputs[-1:])
        assert ids == expected_ids(prompt, one)
    names = [outputs[0].request_id for outputs in found]
    assert len({*names}) == 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_reader_gets_less_and_misses_nothing(serve, make_engine, kind):
    options = {"max_tokens": 12, "temperature": 1, "seed": 4, "logprobs": 0, "n": 2}
    engine = make_engine()
    engine.add_request(
        "w", "abc", SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)
    )
    whole = []
    while not whole:
        whole = engine.step()
    llm = serve(engine)

    async def main():
        params = SamplingParams(**options, output_kind=kind)
        outputs = llm.generate("abc", params)
        read = [await anext(outputs)]
        while not await is_idle(llm):
            pass
        return read + await collect(outputs)

    read = asyncio.run(main())
    assert len(read) <= 2  # the first, and all the rest in one
    for index, done in enumerate(whole[0].outputs):
        parts = [o for one in read for o in one.outputs if o.index == index]
        parts = parts if kind is DELTA else parts[-1:]
        assert "".join(part.text for part in parts) == done.text
        assert [i for part in parts for i in part.token_ids] == done.token_ids
        assert [e for part in parts for e in part.logprobs] == done.logprobs
        assert parts[-1].cumulative_logprob == done.cumulative_logprob
        assert parts[-1].finish_reason == done.finish_reason
    assert [one.finished for one in read] == [False] * (len(read) - 1) + [True]


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
    serve, make_engine, expected_ids, leave, ahead
):
    engine = make_engine(ahead=ahead)
    gate, llm = Gate(engine), serve(engine)

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


def test_a_reader_who_is_cancelled_before_the_request_is_added(serve, make_engine):
    gate_keeper = threading.Event()
    llm = serve()

    async def main():
        llm._thread.call(lambda _: gate_keeper.wait(LONG))
        tasks = [
            asyncio.create_task(collect(llm.generate([i], greedy()))) for i in range(3)
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        gate_keeper.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert [results[i][-1].finished for i in (0, 2)] == [True, True]
        assert await is_idle(llm)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["close", "drop"])
def test_an_added_request_lives_as_long_as_its_stream(serve, make_engine, how):
    engine = make_engine()
    gate, llm = Gate(engine), serve(engine)

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
        del stream, reading
        gc.collect()
        assert (await llm.get_stats()).num_running == 0

    asyncio.run(main())


BAD = [
    ({"prompt": ""}, PromptError),
    ({"prompt": [99]}, PromptError),
    ({"prompt": [1], "sampling_params": 3}, InvalidValueError),
    (
        {"prompt": [1], "sampling_params": greedy(stop_token_ids=[99])},
        SamplingParamsError,
    ),
    ({"prompt": [1], "request_id": 3}, InvalidValueError),
    ({"prompt": [1], "request_id": ""}, InvalidValueError),
    ({"prompt": [1], "request_id": "good"}, InvalidValueError),
    ({"prompt": [1], "priority": "high"}, InvalidValueError),
    ({"prompt": [1], "lora_request": object()}, UnsupportedError),
]


@pytest.mark.parametrize(("arguments", "error"), BAD)
def test_an_error_reaches_only_its_caller(
    serve, make_engine, expected_ids, arguments, error
):
    engine = make_engine()
    gate, llm = Gate(engine), serve(engine)

    async def main():
        good = await llm.add_request("good", [4, 4], greedy(8, output_kind=DELTA))
        with pytest.raises(error):
            await collect(llm.generate(**arguments))
        await gate.open(llm)
        assert final_ids(await collect(good)) == expected_ids([4, 4], greedy(8))

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_request_ends_with_what_there_is(
    serve, make_engine, expected_ids, kind
):
    engine = make_engine(ahead=False)
    gate, llm = Gate(engine), serve(engine)

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
    serve, make_engine, expected_ids
):
    engine = make_engine()
    gate, collect_step = Gate(engine), engine.runner.collect

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
            for _ in range(2):
                with pytest.raises(EngineStoppedError, match="device lost"):
                    await collect(llm.generate([1], greedy()))
            with pytest.raises(EngineStoppedError, match="device lost"):
                await llm.check_health()

    asyncio.run(main())


def test_shutting_down_reaches_all_who_wait(make_engine):
    engine = make_engine(seqs=1)
    gate, llm = Gate(engine), AsyncLLM.from_engine(engine)

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

    asyncio.run(main())
    llm.shutdown()
    check_idle(engine)
    assert not llm._thread._thread.is_alive()


def test_several_event_loops(serve, expected_ids):
    llm, found, ready = serve(), {}, threading.Barrier(3)

    async def main(number):
        ready.wait(LONG)
        params = greedy(9, output_kind=DELTA)
        many = (collect(llm.generate([number, i], params)) for i in range(5))
        found[number] = await asyncio.gather(*many)

    threads = [
        threading.Thread(target=lambda i=i: asyncio.run(main(i))) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    for number in range(3):
        for i, outputs in enumerate(found[number]):
            assert final_ids(outputs) == expected_ids([number, i], greedy(9))


def test_a_loop_that_has_closed_takes_its_requests_with_it(
    serve, make_engine, expected_ids
):
    engine = make_engine()
    gate, llm = Gate(engine), serve(engine)
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


def test_urgent_requests_come_first(serve, make_engine):
    engine = make_engine(seqs=1, policy="priority")
    gate, llm, order = Gate(engine), serve(engine), []

    async def main():
        async def run(stream):
            await collect(stream)
            order.append(stream.request_id)

        ranks = {"first": 0, "late": 7, "soon": 1}
        streams = [
            await llm.add_request(name, [1], greedy(3), priority=rank)
            for name, rank in ranks.items()
        ]
        await gate.open(llm)
        await asyncio.gather(*map(run, streams))

    asyncio.run(main())
    assert order == ["first", "soon", "late"]


def test_without_params_the_model_decides(make_engine, letters):
    with AsyncLLM.from_engine(make_engine(), {"max_new_tokens": 3}) as llm:

        async def main():
            assert llm.get_default_sampling_params() == SamplingParams(max_tokens=3)
            outputs = await collect(llm.generate("abc"))
            assert len(outputs[-1].outputs[0].token_ids) == 3
            assert await llm.get_tokenizer() is letters.hf
            assert await llm.reset_prefix_cache()

        asyncio.run(main())


def test_an_engine_that_nobody_uses_stops_by_itself(make_engine):
    llm = AsyncLLM.from_engine(make_engine())
    thread = llm._thread._thread
    del llm
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def alphabet(alphabet_dir, make_llm):
    """A served model that says the alphabet."""
    options = make_llm(alphabet_dir, skip_tokenizer_init=False).config.asked
    given = {
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "num_gpu_blocks_override": options.num_gpu_blocks_override,
        "max_model_len": options.max_model_len,
        "compilation_cache_dir": options.compilation_cache_dir,
    }
    with AsyncLLM(str(alphabet_dir), **given) as llm:
        yield llm


def test_a_model_answers_and_chats(alphabet):
    async def main():
        params = greedy(3, output_kind=DELTA)
        user = [{"role": "user", "content": "hi"}]
        template = "{{ messages[0].content }}"
        found = await asyncio.gather(
            collect(alphabet.generate("k", params)),
            collect(alphabet.chat(user, params)),
            collect(alphabet.chat(user, params, chat_template=template)),
        )
        texts = ["".join(o.outputs[0].text for o in outputs) for outputs in found]
        assert texts == ["lmn", "abc", "jkl"]
        assert found[1][0].prompt.endswith("assistant:")
        with pytest.raises(ChatTemplateError):
            await collect(alphabet.chat([], params))
        assert await is_idle(alphabet)

    asyncio.run(main())


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
