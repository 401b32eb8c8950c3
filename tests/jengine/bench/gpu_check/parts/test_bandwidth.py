import pytest

from jengine.bench.gpu_check.arithmetic import Ceiling, Heads
from jengine.bench.gpu_check.attention_chain import ChainShape
from jengine.bench.gpu_check.parts.bandwidth import FULL, describe, name_of
from jengine.bench.gpu_check.timing import Timing

HEADS = Heads(32, 8, 128)


def test_shapes_are_those_that_were_asked_for():
    names = {name_of(shape) for shape in (*FULL.decodes, *FULL.prefills)}
    assert names >= {
        "decode 1 x 1024",
        "decode 1 x 16384",
        "decode 8 x 4096",
        "decode 64 x 4096",
        "prefill 1 x 4096",
    }
    assert name_of(ChainShape(1, 8192, 2048, HEADS)) == "prefill 1 x 2048 after 6144"
    # An H200 has 50 MiB of cache: what is read between two reads is far more.
    for shape in FULL.decodes:
        num_bytes = shape.num_calls(FULL.cache_bytes) * shape.work.bytes_moved
        assert num_bytes >= 200 * 2**20


def test_decode_is_a_share_of_the_copy_and_prefill_of_the_product():
    ceiling = Ceiling(bytes_per_s=4e12, flops_per_s=8e14)
    decode = ChainShape(64, 4096, 1, HEADS)
    seconds = decode.work.bytes_moved / 2e12
    fields = describe(decode, Timing(seconds, 0.0, 1.0, 7, 20), ceiling)
    assert fields["share"] == pytest.approx(0.5)
    assert fields["bytes_per_s"] == pytest.approx(2e12)
    assert fields["summary"].startswith("2.00 TB/s, 50% of the copy")
    prefill = ChainShape(1, 4096, 4096, HEADS)
    seconds = prefill.work.flops / 2e14
    fields = describe(prefill, Timing(seconds, 0.0, 1.0, 7, 20), ceiling)
    assert fields["share"] == pytest.approx(0.25)
    assert fields["summary"].startswith("200 TFLOP/s, 25% of the product")
