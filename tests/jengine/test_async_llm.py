"""`AsyncLLM`; where timing matters, a gate decides which steps the engine may run."""

import asyncio
import inspect
import threading

import numpy as np
import pytest

from jengine import LLM, AsyncLLM, RequestOutputKind, SamplingParams
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
    serve, make_engine, make_gate, expected_ids, arguments, error
):
    engine = make_engine()
    gate, llm = make_gate(engine), serve(engine)

    async def main():
        good = await llm.add_request("good", [4, 4], greedy(8, output_kind=DELTA))
        with pytest.raises(error):
            await collect(llm.generate(**arguments))
        await gate.open(llm)
        assert final_ids(await collect(good)) == expected_ids([4, 4], greedy(8))

    asyncio.run(main())


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


def test_urgent_requests_come_first(serve, make_engine, make_gate):
    engine = make_engine(seqs=1, policy="priority")
    gate, llm, order = make_gate(engine), serve(engine), []

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

        asyncio.run(main())


def test_the_prefix_cache_is_reset_with_the_arguments_of_llm(serve):
    llm = serve()
    parameters = inspect.signature(AsyncLLM.reset_prefix_cache).parameters
    assert parameters == inspect.signature(LLM.reset_prefix_cache).parameters

    async def main():
        assert await llm.reset_prefix_cache()
        assert await llm.reset_prefix_cache(False, False)
        for name in list(parameters)[1:]:
            with pytest.raises(UnsupportedError, match=f"{name}=True"):
                await llm.reset_prefix_cache(**{name: True})

    asyncio.run(main())


@pytest.mark.parametrize(
    "method", ["sleep", "wake_up", "pause_generation", "resume_generation", "encode"]
)
def test_vllms_other_methods_are_refused_by_name(serve, method):
    llm = serve()
    with pytest.raises(UnsupportedError, match=f"AsyncLLM.{method} is not supported"):
        getattr(llm, method)
    assert not hasattr(llm, method)
    with pytest.raises(AttributeError, match="AsyncLLM has no attribute 'no_such'"):
        llm.no_such  # noqa: B018 - it is the asking that counts


def test_a_priority_may_be_numpys(serve):
    llm = serve()

    async def main():
        outputs = await collect(llm.generate([1], greedy(2), priority=np.int64(3)))
        assert outputs[-1].finished
        with pytest.raises(InvalidValueError, match="priority is True"):
            await collect(llm.generate([1], greedy(2), priority=True))

    asyncio.run(main())


@pytest.fixture(scope="module")
def alphabet(alphabet_dir, small_options):
    """A served model that says the alphabet."""
    options = small_options | {"skip_tokenizer_init": False}
    with AsyncLLM(str(alphabet_dir), **options) as llm:
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
