import jax

from jengine.bench.gpu_check.target import find_target
from jengine.runner.device import GpuTarget


def test_on_a_cpu_kernels_are_interpreted_with_a_cards_tiles():
    target = find_target()
    assert target.device == jax.local_devices()[0]
    assert target.interpret
    assert target.gpu == GpuTarget("sm_90", 132)
    assert target.attention == "xla"
    assert target.compile_threads >= 1


def test_on_a_gpu_its_own_tiles_are_used():
    target = find_target()._replace(gpu=GpuTarget("sm_80", 108), interpret=False)
    assert target.attention == "pallas"
    splits = [
        one.tiling(
            heads=32,
            kv_heads=8,
            head_dim=128,
            dtype="bfloat16",
            num_tokens=rows,
            num_rows=rows,
        ).decode.num_splits
        for one in (target, target._replace(gpu=GpuTarget("sm_80", 8)))
        for rows in (4, 256)
    ]
    assert splits[0] > splits[2] >= splits[1] == splits[3] == 1
