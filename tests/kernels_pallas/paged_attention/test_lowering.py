"""Every kind of step lowers for CUDA devices, on a machine that has none.

Interpret mode takes nearly anything; Triton does not. This is the step before
Triton: unsupported operations, sizes and dtypes fail here. What registers and shared
memory say, only a compilation tells.
"""

import contextlib
import itertools
import re
import warnings

import jax
import jax.numpy as jnp
import pytest

from kernels_pallas.paged_attention import (
    attention_metadata,
    pallas_attention,
    pallas_write_kv,
    tiling_for,
)
from kernels_pallas.paged_attention.metadata import max_tiles

# jax 0.10 lowers for sm_90 whatever the device is to be.
CAN_CHOOSE = jax.__version_info__ >= (0, 11)
DEVICES = {"sm_90": "NVIDIA H200"} | (
    {"sm_80": "NVIDIA A100-SXM4-80GB"} if CAN_CHOOSE else {}
)
NUM_TOKENS, NUM_ROWS, WIDTH, NUM_BLOCKS = 128, 8, 16, 64

# (query heads, KV heads, features, block size)
SHAPES = [
    (32, 8, 128, 16),  # Llama-3.1-8B
    (32, 8, 64, 16),  # Llama-3.2-1B
    (28, 4, 128, 32),  # Qwen2.5-7B
    (64, 8, 64, 16),  # gpt-oss-20b
    (8, 1, 256, 16),  # Gemma-2B
    (32, 32, 96, 8),  # Phi-3-mini
    (71, 1, 64, 64),  # Falcon-7B
    (9, 3, 64, 128),  # SmolLM2-135M
    (16, 16, 80, 16),  # OPT-2.7B, half its heads
]
FEATURES = {
    "plain": {},
    "window": {"sliding_window": 1024},
    "soft cap": {"soft_cap": 30.0},
    "sinks": {"sinks": True},
}
DTYPES = {
    "bfloat16": ("bfloat16", "bfloat16"),
    "float16": ("float16", "float16"),
    "float32": ("float32", "float32"),
    "int8": ("bfloat16", "int8"),
    "e4m3": ("bfloat16", "float8_e4m3fn"),
    "e5m2": ("float16", "float8_e5m2"),
}
STEPS = [
    *itertools.product(SHAPES, ["bfloat16"], ["plain"]),
    *itertools.product(SHAPES[:1], DTYPES, ["window"]),
    *itertools.product(SHAPES[:1], ["bfloat16", "int8"], ["soft cap", "sinks"]),
    *itertools.product(SHAPES[2:6], ["float32", "e5m2"], ["plain"]),
    *itertools.product(SHAPES[4:6], ["e4m3", "int8"], ["sinks"]),
    *itertools.product(SHAPES[1:6], ["float16", "int8"], ["window"]),
    *itertools.product(SHAPES[7:9], ["bfloat16", "float32"], ["sinks"]),
]
CASES = [
    (architecture, *step)
    for architecture, step in itertools.product(DEVICES, STEPS)
    if (architecture, step[1]) != ("sm_80", "e4m3")
]


@contextlib.contextmanager
def lowering_for(architecture):
    """Lower for a device that is not there; of the warnings, allow Triton's one."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings(
            "ignore", "The Pallas Triton backend is deprecated", DeprecationWarning
        )
        if CAN_CHOOSE:
            device = jax.sharding.AbstractDevice(
                device_kind=DEVICES[architecture], num_cores=None, platform="gpu"
            )
            mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
            stack.enter_context(jax.sharding.use_abstract_mesh(mesh))
        yield


def lower(architecture, function, **arrays):
    with lowering_for(architecture):
        traced = jax.jit(function).trace(**arrays)
        return traced.lower(lowering_platforms=("cuda",)).as_text()


def array(*shape, dtype):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def lower_step(architecture, shape, dtypes, *, single, sinks=False, **options):
    """Lower a step with the table's tiles; returns its text and the tiles."""
    heads, kv_heads, head_dim, block_size = shape
    dtype, cache_dtype = dtypes
    num_tokens = NUM_ROWS if single else NUM_TOKENS
    tiling = tiling_for(
        architecture=architecture,
        head_dim=head_dim,
        group=heads // kv_heads,
        dtype=cache_dtype,
        num_tokens=num_tokens,
        num_rows=NUM_ROWS,
        num_kv_heads=kv_heads,
        num_sms=132,
    )
    cache = (NUM_BLOCKS, kv_heads, block_size, head_dim)
    arrays = {
        "queries": array(num_tokens, heads, head_dim, dtype=dtype),
        "keys": array(*cache, dtype=cache_dtype),
        "values": array(*cache, dtype=cache_dtype),
        "block_tables": array(NUM_ROWS, WIDTH, dtype="int32"),
        "query_start_loc": array(NUM_ROWS + 1, dtype="int32"),
        "seq_lens": array(NUM_ROWS, dtype="int32"),
    }
    if jnp.dtype(cache_dtype).itemsize == 1:
        scales = array(*cache[:3], dtype="float32")
        arrays |= {"key_scales": scales, "value_scales": scales}
    if sinks:
        arrays["sinks"] = array(heads, dtype="float32")

    def step(**arrays):
        metadata = attention_metadata(
            arrays["query_start_loc"],
            num_tokens=num_tokens,
            group=heads // kv_heads,
            tiling=tiling,
            single_token_rows=single,
        )
        return pallas_attention(
            **arrays,
            metadata=metadata,
            scale=head_dim**-0.5,
            tiling=tiling,
            single_token_rows=single,
            **options,
        )

    return lower(architecture, step, **arrays), tiling


def launches(text):
    """(name, warps, stages, grid) of each Triton launch of a lowered program."""
    found = []
    for line in text.splitlines():
        if "custom_call" in line and "triton" in line:
            # The program itself is in the same line, in bytes.
            line = re.sub(r'ir = ".*?[^\\]"', "", line)
            numbers = {
                key: int(value)
                for key, value in re.findall(r"(\w+) = (\d+) : i32", line)
            }
            name = re.search(r'name = "(\w+)"', line)
            assert name, line[:200]
            grid = tuple(numbers[f"grid_{axis}"] for axis in "xyz")
            found.append((name[1], numbers["num_warps"], numbers["num_stages"], grid))
    return found


def expected_launches(tiling, shape, *, single):
    heads, kv_heads, _, _ = shape
    tile = tiling.decode
    grid = (NUM_ROWS, kv_heads, tile.num_splits)
    names = [("paged_attention_decode", tile.num_warps, tile.num_stages, grid)]
    if tile.num_splits > 1:
        names.append(("paged_attention_merge", 4, 1, (NUM_ROWS, heads, 1)))
    if not single:
        tile = tiling.prefill
        tiles = max_tiles(NUM_TOKENS, NUM_ROWS, tile.queries(heads // kv_heads))
        grid = (tiles, kv_heads, 1)
        names.append(("paged_attention_prefill", tile.num_warps, tile.num_stages, grid))
    return names


@pytest.mark.parametrize(
    ("architecture", "shape", "dtypes", "feature"),
    CASES,
    ids=lambda v: str(v).replace(" ", ""),
)
def test_steps_lower_to_triton_with_their_tiles(architecture, shape, dtypes, feature):
    text, tiling = lower_step(
        architecture, shape, DTYPES[dtypes], single=False, **FEATURES[feature]
    )
    assert launches(text) == expected_launches(tiling, shape, single=False)


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_steps_of_single_rows_lower(shape):
    text, tiling = lower_step("sm_90", shape, DTYPES["bfloat16"], single=True)
    assert launches(text) == expected_launches(tiling, shape, single=True)


def test_e4m3_is_refused_by_name_on_ampere():
    with pytest.raises(ValueError, match="float8_e4m3fn needs sm_89"):
        lower_step("sm_80", SHAPES[0], DTYPES["e4m3"], single=True)


@pytest.mark.parametrize(
    ("shape", "cache_dtype"),
    [*itertools.product(SHAPES, ["bfloat16"]), (SHAPES[0], "float8_e4m3fn")],
    ids=str,
)
def test_writes_lower_to_one_launch(shape, cache_dtype):
    _, kv_heads, head_dim, block_size = shape
    cache = array(NUM_BLOCKS, kv_heads, block_size, head_dim, dtype=cache_dtype)
    new = array(NUM_TOKENS, kv_heads, head_dim, dtype="bfloat16")
    text = lower(
        "sm_90",
        pallas_write_kv,
        keys=cache,
        values=cache,
        new_keys=new,
        new_values=new,
        slot_mapping=array(NUM_TOKENS, dtype="int32"),
    )
    ((name, _, _, grid),) = launches(text)
    assert (name, grid) == ("paged_attention_write", (NUM_TOKENS, 1, 1))
