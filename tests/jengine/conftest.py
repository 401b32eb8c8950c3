"""Small checkpoints, what transformers makes of them, and engines on top."""

import asyncio
import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from jengine import LLM, AsyncLLM, SamplingParams
from jengine.core.plan import SamplingOptions
from jengine.core.scheduler import Scheduler
from jengine.engine import LLMEngine
from jengine.input_processor import EndTokens, InputLimits, InputProcessor
from jengine.metrics_recorder import MetricsRecorder
from jengine.output_processor import OutputProcessor
from jengine.testing import (
    cycle,
    write_byte_tokenizer,
    write_markov_checkpoint,
    write_random_checkpoint,
)
from jengine.testing.fake_runner import FakeRunner, next_token
from jengine.text.tokenizer import Tokenizer

F2_GREEDY = pathlib.Path(__file__).parent / "data" / "f2_greedy.json"


class Greedy(NamedTuple):
    """What transformers generates greedily, in float32.

    Attributes:
      prompt: token ids.
      ids: 64 new ids, without regard to EOS.
      num_sure: leading ids whose margin rounding could not have turned.
      first_logprob: natural logarithm of the first new id's probability.
    """

    prompt: list[int]
    ids: list[int]
    num_sure: int
    first_logprob: float

    def expected(self, count: int) -> list[int]:
        """The first ids, as far as they can be demanded exactly."""
        return self.ids[: min(count, self.num_sure)]


@pytest.fixture(scope="session")
def f2_greedy() -> list[Greedy]:
    """Prompts of 1 to 80 tokens, then 18 that share starts, then a twin of the last."""
    return [Greedy(**entry) for entry in json.loads(F2_GREEDY.read_text())]


@pytest.fixture(scope="session")
def f2_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A small random Llama that really uses its history; 320 ids, no tokenizer."""
    return pathlib.Path(write_random_checkpoint(tmp_path_factory.mktemp("f2")))


@pytest.fixture(scope="session")
def alphabet_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A checkpoint that says the alphabet, from the letter after the last one."""
    folder = tmp_path_factory.mktemp("alphabet")
    write_byte_tokenizer(folder)
    table = cycle([*range(97, 123)], 320) | {58: np.eye(320, dtype=np.float32)[97] * 20}
    write_markov_checkpoint(
        folder,
        table,
        vocab_size=320,
        eos_token_id=257,
        generation_config={"temperature": 0.0, "max_new_tokens": 5, "top_k": 50},
    )
    return folder


@pytest.fixture(scope="session")
def small_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of a small engine without a tokenizer.

    All of a run's processes share one cache of compiled programs, and so do several
    runs that name the same folder.
    """
    cache = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = cache.parent
    cache = pathlib.Path(os.environ.get("JENGINE_TEST_XLA_CACHE", cache / "xla"))
    return {
        "skip_tokenizer_init": True,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "num_gpu_blocks_override": 200,
        "max_model_len": 256,
        "compilation_cache_dir": str(cache),
    }


@pytest.fixture(scope="session")
def alphabet_llm(alphabet_dir: pathlib.Path, make_llm: Callable[..., LLM]) -> LLM:
    """Says the alphabet, from the letter after the last of the prompt."""
    options = {"max_num_seqs": 2, "max_num_batched_tokens": 16}
    return make_llm(alphabet_dir, skip_tokenizer_init=False, **options)


@pytest.fixture(scope="session")
def make_llm(small_options: dict[str, Any]) -> Callable[..., LLM]:
    """Makes engines that are small unless asked otherwise."""

    def make(model: Any, **options: Any) -> LLM:
        return LLM(str(model), **(small_options | options))

    return make


class _Letters:
    """A tokenizer of 26 ids, as far as one written in Python is asked."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, token_ids: list[int], **_: Any) -> str:
        return "".join(chr(ord("a") + token) for token in token_ids)


@pytest.fixture(scope="session")
def letters() -> Tokenizer:
    """A tokenizer whose tokens are the letters a to z; no library takes part."""
    return Tokenizer(
        hf=_Letters(),
        max_token_id=25,
        eos_token_id=None,
        special_token_ids=frozenset(),
        known_token_ids=frozenset(range(26)),
        backend=None,
    )


@pytest.fixture
def make_engine(letters: Tokenizer) -> Callable[..., LLMEngine]:
    """Makes engines that run on a `FakeRunner`: no model, no jax."""

    def make(
        *,
        ahead: bool = True,
        num_blocks: int = 40,
        seqs: int = 5,
        policy: str = "fcfs",
        metrics: MetricsRecorder | None = None,
        **runner_options: Any,
    ) -> LLMEngine:
        sizes = {
            "num_blocks": num_blocks,
            "block_size": 4,
            "token_budget": 16,
            "max_num_seqs": seqs,
        }
        scheduler = Scheduler(**sizes, policy=policy)
        limits = InputLimits(26, 64, scheduler.max_sequence_tokens, 5, seed=0)
        return LLMEngine(
            scheduler,
            FakeRunner(**sizes, vocab_size=26, **runner_options),
            InputProcessor(limits, EndTokens(None, frozenset()), letters),
            OutputProcessor(letters),
            metrics=metrics,
            async_scheduling=ahead,
        )

    return make


class _Gate:
    """Lets the engine of an `AsyncLLM` run only as many steps as it is told."""

    def __init__(self, engine: Any) -> None:
        self._permits = 0
        step, is_unfinished = engine.step, engine.has_unfinished_requests

        def use_and_step() -> Any:
            self._permits -= 1
            return step()

        engine.step = use_and_step
        engine.has_unfinished_requests = lambda: self._permits > 0 and is_unfinished()

    async def let(self, llm: AsyncLLM, steps: int) -> None:
        """Allow some steps more, from here on."""

        def add(_: LLMEngine) -> None:
            self._permits += steps

        await asyncio.wrap_future(llm._thread.call(add))

    async def open(self, llm: AsyncLLM) -> None:
        """Allow all that may come."""
        await self.let(llm, 10**9)


@pytest.fixture
def make_gate() -> Callable[[LLMEngine], _Gate]:
    """Makes gates; for tests to which it matters when a step runs."""
    return _Gate


@pytest.fixture
def serve(make_engine: Callable[..., LLMEngine]) -> Iterator[Callable[..., AsyncLLM]]:
    """Serves engines, and sees that nothing is left in them when the test is over."""

    def check_idle(engine: LLMEngine) -> None:
        assert engine.get_num_unfinished_requests() == 0
        engine.check_invariants()
        assert engine.stats.num_blocks_in_use == 0

    with contextlib.ExitStack() as stack:

        def start(engine: LLMEngine | None = None) -> AsyncLLM:
            engine = engine or make_engine()
            stack.callback(check_idle, engine)
            return stack.enter_context(AsyncLLM.from_engine(engine))

        yield start


@pytest.fixture
def expected_ids() -> Callable[[list[int], SamplingParams], list[int]]:
    """What a request gives on an engine of `make_engine` when it runs alone."""

    def run(prompt: list[int], params: SamplingParams) -> list[int]:
        stops = params.stop_token_ids
        options = SamplingOptions(
            temperature=params.temperature,
            seed=params.seed or 0,
            stops_from=len(prompt) + params.min_tokens,
            stop_ids=tuple(stops) if params.min_tokens else (),
        )
        ids = list(prompt)
        for number in range(params.max_tokens or 0):
            ids.append(next_token(ids, options, vocab_size=26))
            if ids[-1] in stops and number + 1 > params.min_tokens:
                break
        return ids[len(prompt) :]

    return run


@pytest.fixture
def check_idle() -> Callable[[LLM], None]:
    """Checks that an engine has nothing left inside and lost no block."""

    def check(llm: LLM) -> None:
        assert not llm.llm_engine.has_unfinished_requests()
        llm.llm_engine.check_invariants()
        stats = llm.stats
        assert (stats.num_running, stats.num_waiting, stats.num_blocks_in_use) == (
            0,
            0,
            0,
        )

    return check
