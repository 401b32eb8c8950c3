"""Small checkpoints, what transformers makes of them, and engines on top."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from jengine import LLM
from jengine.testing import write_random_checkpoint

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
def make_llm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LLM]:
    """Makes engines without a tokenizer, small unless asked otherwise.

    All of a run's processes share one cache of compiled programs.
    """
    cache = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = cache.parent

    def make(model: Any, **options: Any) -> LLM:
        small = {
            "skip_tokenizer_init": True,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "num_gpu_blocks_override": 200,
            "max_model_len": 256,
            "compilation_cache_dir": str(cache / "xla"),
        }
        return LLM(str(model), **(small | options))

    return make


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
