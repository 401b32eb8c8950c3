import itertools
import types

import pytest

from jengine.bench.roofline.steps import time_decode_steps
from jengine.errors import InvalidValueError


class FakeLLM:
    """An engine without a model behind the face of an `LLM`."""

    def __init__(self, engine):
        self.config = types.SimpleNamespace(
            max_num_seqs=5, max_model_len=60, max_num_batched_tokens=16, vocab_size=26
        )
        self.llm_engine = engine

    def reset_prefix_cache(self):
        return self.llm_engine.reset_prefix_cache()


@pytest.mark.parametrize("ahead", [False, True])
def test_steps_in_which_all_decode(make_engine, ahead):
    engine = make_engine(ahead=ahead, num_blocks=100)
    llm, rows = FakeLLM(engine), []
    steps = (0.25, 0.5, 64.0, 0.25, 0.5)  # one that something else held up
    times = itertools.chain.from_iterable((10.0, 10.0 + one) for one in steps)
    dispatch = engine.runner.dispatch

    def timed_dispatch(plan, **options):
        rows.append((len(plan.rows), plan.num_tokens))
        return dispatch(plan, **options)

    engine.runner.dispatch = timed_dispatch
    seconds = time_decode_steps(llm, 4, context=9, steps=5, clock=lambda: next(times))
    assert rows[-5:] == [(4, 4)] * 5
    assert seconds == 0.5
    assert not engine.has_unfinished_requests()
    assert engine.stats.num_blocks_in_use == 0


def test_no_room(make_engine):
    llm = FakeLLM(make_engine(num_blocks=100))
    with pytest.raises(InvalidValueError, match="at most 5 requests"):
        time_decode_steps(llm, 6, context=9)
    with pytest.raises(InvalidValueError, match="of 60 tokens"):
        time_decode_steps(llm, 4, context=50)


def test_a_pool_that_is_too_small(make_engine):
    llm = FakeLLM(make_engine(num_blocks=12))
    with pytest.raises(InvalidValueError, match="fits into the KV cache"):
        time_decode_steps(llm, 5, context=9, steps=2)
    assert not llm.llm_engine.has_unfinished_requests()
