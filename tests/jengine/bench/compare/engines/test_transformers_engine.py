import pytest

from jengine.bench.compare.engines.transformers_engine import load


@pytest.fixture
def engine(f2_dir):
    pytest.importorskip("torch")
    return load({"folder": str(f2_dir), "dtype": "float32", "threads": 1, "engine": {}})


def test_a_padded_batch_draws_what_each_prompt_draws_alone(engine, f2_greedy):
    some = f2_greedy[:4]
    assert len({len(one.prompt) for one in some}) > 1
    found = engine.generate([one.prompt for one in some], 6)
    assert [len(ids) for ids in found] == [6] * 4
    for ids, one in zip(found, some, strict=True):
        assert ids[: len(one.expected(6))] == one.expected(6)


def test_the_end_of_sequence_ends_nothing(engine, f2_greedy):
    one = f2_greedy[0]
    engine._model.generation_config.eos_token_id = one.ids[0]
    (ids,) = engine.generate([one.prompt], 5)
    assert ids[: len(one.expected(5))] == one.expected(5)
    assert len(ids) == 5


def test_versions(engine):
    import torch
    import transformers

    assert engine.versions() == {
        "version": transformers.__version__,
        "versions": {"torch": torch.__version__},
    }
