import pytest

from jengine.aot.cost import Work
from jengine.bench.gpu_check.arithmetic import Ceiling, Heads, attention_work

HEADS = Heads(num_heads=32, num_kv_heads=8, head_dim=128)


def test_decode_reads_each_key_and_value_once():
    work = attention_work(HEADS, [(4095, 1)] * 64, itemsize=2)
    cache = 64 * 4096 * 2 * 8 * 128 * 2
    queries = 64 * 2 * 32 * 128 * 2
    assert work.bytes_moved == cache + queries
    assert work.flops == 4 * 64 * 4096 * 32 * 128


def test_a_prompt_sees_half_of_the_square_and_all_before_it():
    for before, now in ((0, 5), (7, 3)):
        pairs = sum(before + i + 1 for i in range(now))
        work = attention_work(Heads(2, 1, 16), [(before, now)], itemsize=4)
        assert work.flops == 4 * pairs * 2 * 16
        assert work.bytes_moved == 4 * 16 * (2 * now * 2 + 2 * (before + now))


def test_the_longer_floor_is_the_floor():
    ceiling = Ceiling(bytes_per_s=100.0, flops_per_s=1000.0)
    assert ceiling.seconds(Work(bytes_moved=200, flops=1000)) == pytest.approx(2.0)
    assert ceiling.seconds(Work(bytes_moved=200, flops=4000)) == pytest.approx(4.0)


def test_groups():
    assert HEADS.group == 4
