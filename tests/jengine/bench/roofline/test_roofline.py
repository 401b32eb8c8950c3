import json

import pytest

from jengine.aot.cost import Work
from jengine.bench.roofline import roofline
from jengine.bench.roofline.limits import Limits
from jengine.bench.roofline.roofline import decode_work, measure_roofline

LIMITS = Limits(bytes_per_s=1e9, flops_per_s=1e11)


@pytest.fixture
def result(monkeypatch):
    """Weights of 50 MB and 0.5 GFLOP a row, in steps twice as long as the limit."""
    monkeypatch.setattr(
        roofline,
        "time_decode_steps",
        lambda llm, batch, context, steps: 2 * max(0.05, 0.005 * batch),
    )
    return measure_roofline(
        None,
        lambda batch: Work(int(5e7), int(5e8) * batch),
        LIMITS,
        batches=[40, 1, 20, 10],
        context=7,
    )


def test_points_beside_their_limits(result):
    assert [point.batch for point in result.points] == [1, 10, 20, 40]
    assert [point.floor_s for point in result.points] == [0.05, 0.05, 0.1, 0.2]
    assert [point.share for point in result.points] == pytest.approx([0.5] * 4)
    assert result.points[3].tokens_per_s == pytest.approx(100.0)
    assert result.predicted_knee == 10
    assert result.knee == pytest.approx(10, rel=0.01)


def test_text_and_json(result):
    assert str(result) == (
        "memory 1.0 GB/s, products 100.0 GFLOP/s, context 7\n\n"
        "batch  step ms  limit ms  limited by  reached  tok/s\n"
        "-----  -------  --------  ----------  -------  -----\n"
        "1       100.00     50.00      memory      50%   10.0\n"
        "10      100.00     50.00      memory      50%  100.0\n"
        "20      200.00    100.00  arithmetic      50%  100.0\n"
        "40      400.00    200.00  arithmetic      50%  100.0\n\n"
        "knee: measured at batch 10, by the limits 10"
    )
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["limits"] == {"bytes_per_s": 1e9, "flops_per_s": 1e11}
    assert plain["points"][0]["share_of_limit"] == pytest.approx(0.5)


def test_work_of_a_decode_step(f2_dir):
    """Against a count of the checkpoint's own parameters."""
    from jengine.aot.cost import model_sizes
    from jengine.checkpoint import open_checkpoint
    from jengine.runner.build import read_config

    checkpoint = open_checkpoint(f2_dir)
    tensors = checkpoint.tensors
    embeddings = ("model.embed_tokens.weight", "lm_head.weight")
    config = read_config(checkpoint)
    matrices = sum(
        tensors.shape(name)[0] * tensors.shape(name)[1]
        for name in tensors.names()
        if len(tensors.shape(name)) == 2 and name not in embeddings
    )
    head = config.vocab_size * config.hidden_size
    work = decode_work(model_sizes(config), 3, context=10, itemsize=4)
    attention = 4 * config.num_heads * config.head_dim * 3 * 10 * config.num_layers
    assert work.flops == 3 * 2 * (matrices + head) + attention
    kv = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    vectors = sum(
        tensors.shape(name)[0]
        for name in tensors.names()
        if len(tensors.shape(name)) == 1
    )
    numbers = matrices + vectors + head + 3 * config.hidden_size + 3 * (10 + 1) * kv
    assert work.bytes_moved == 4 * numbers
