"""A split model gives what a whole one gives, and communicates no more than it must."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jengine.runner.sharding import AXIS, TensorParallel, arrange, split_model
from models.config import ModelConfig, UnsupportedModelError
from models.registry import abstract_parameters
from models.split import ParameterSplit

# One step of prompts, one of decoding and one of sampling, on one device and on two.
COMPARE = """
import json, sys
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jengine.checkpoint import open_checkpoint
from jengine.runner.attention import attention_backend
from jengine.runner.bucket import StepBucket
from jengine.runner.cache import allocate
from jengine.core.plan import SamplingOptions
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.load import load_model
from jengine.runner.pallas_attention import HeadShape
from jengine.runner.mirror import float_columns
from jengine.runner.program_keys import (
    DecodeKey, ForwardKey, PromptKey, SampleKey, SeatKey
)
from jengine.runner.programs import ProgramShapes, lower
from jengine.runner.sample import SampleMode
from jengine.runner.sharding import (
    AXIS, KV_SPEC, TensorParallel, arrange, split_model
)
from jengine.runner.step import StepContext
from models.config import ModelConfig
from models.registry import head_weight, nest
from models.split import parameter_split
from flax import traverse_util

folder, backend = sys.argv[1:]
checkpoint = open_checkpoint(folder)
config = ModelConfig.from_hf(dict(checkpoint.config))
device = jax.local_devices()[0]
model = load_model(checkpoint, config, "float32", device)
NUM_BLOCKS, BLOCK_SIZE = 9, 4

def shape(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)

def run(shards):
    heads = HeadShape(
        config.num_heads // shards, config.num_kv_heads // shards, config.head_dim,
        "float32",
    )
    kv = allocate(config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE,
                  dtype="float32", device=device)
    last = jnp.zeros(4, jnp.int32)
    params, graphdef, parallel = model.params, model.graphdef, None
    if shards > 1:
        mesh = Mesh(np.array(jax.devices()[:shards]), (AXIS,))
        graphdef, shapes, specs = split_model(config, "float32", shards)
        flat = traverse_util.flatten_dict(params)
        placed = {}
        for path, array in flat.items():
            split = parameter_split(config, path)
            whole = np.asarray(array)
            whole = whole if split is None else arrange(whole, split, shards)
            placed[path] = jax.device_put(whole, NamedSharding(mesh, specs[path]))
        params, parallel = nest(placed), TensorParallel(mesh, nest(specs))
        kv = jax.device_put(kv, NamedSharding(mesh, KV_SPEC))
        last = jax.device_put(last, NamedSharding(mesh, PartitionSpec()))
    context = StepContext(
        graphdef=graphdef, attend=attention_backend(backend, heads, None),
        block_size=BLOCK_SIZE, num_slots=NUM_BLOCKS * BLOCK_SIZE, max_rows=4,
        split_over=AXIS if shards > 1 else None,
    )
    programs = ProgramShapes(
        context, *jax.tree.map(shape, (params, kv, last)), parallel
    )
    prompts = StepBucket(False, 16, 4, 4)
    layout = forward_layout(prompts)
    ints = np.zeros(layout.size, np.int32)
    ints[layout.token_ids][:9] = [5, 17, 300, 4, 7, 9, 11, 319, 2]
    ints[layout.query_start_loc] = [0, 4, 9, 9, 9]
    ints[layout.seq_lens] = [4, 5, 0, 0]
    ints[layout.logits_indices] = [3, 8, 0, 0]
    tables = np.zeros((4, 4), np.int32)
    tables[0, :2], tables[1, :2] = [1, 2], [3, 4]
    ints[layout.block_tables] = tables.ravel()
    packed = np.zeros((2, len(SamplingColumn)), np.int32)
    packed[:, 0] = [0, 1]
    packed[:, SamplingColumn.TEMPERATURE :] = float_columns(SamplingOptions())
    forward = lower(programs, ForwardKey(prompts)).compile()
    sample = lower(programs, SampleKey(2, SampleMode(num_logprobs=3))).compile()
    kv, hidden, states = forward(params, kv, last, ints)
    last, out, _ = sample(head_weight(params), last, hidden, packed)
    found = [np.asarray(out).tolist()]
    report = lower(programs, PromptKey(16, 3, "raw_logprobs")).compile()
    targets = np.zeros((64, 2), np.int32)
    targets[:3] = [[0, 17], [1, 300], [4, 9]]
    shown = report(head_weight(params), states, targets)
    found.append(np.asarray(shown)[:3].tolist())
    lower(programs, SeatKey()).compile()
    decode_bucket = StepBucket(True, 2, 2, 4)
    decode = lower(programs, DecodeKey(decode_bucket, SampleMode())).compile()
    layout = forward_layout(decode_bucket)
    for step in range(3):
        ints = np.zeros(layout.size, np.int32)
        ints[layout.token_ids] = [-1, -2]
        ints[layout.query_start_loc] = [0, 1, 2]
        ints[layout.seq_lens] = [5 + step, 6 + step]
        ints[layout.logits_indices] = [0, 1]
        ints[layout.block_tables] = tables[:2].ravel()
        kv, last, out = decode(params, kv, last, ints, packed)
        found.append(np.asarray(out).tolist())
    text = decode.as_text()
    return found, text.count(" all-reduce("), text.count(" all-gather(")

print(json.dumps([run(1), run(2), config.num_layers]))
"""
CONFIG = ModelConfig.from_hf(
    {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 8,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 10,
        "max_position_embeddings": 64,
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["xla", "pallas"])
def test_two_devices_give_the_tokens_of_one(f2_dir, backend):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(f2_dir), backend],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    (one, *none), (two, reduces, gathers), num_layers = json.loads(done.stdout)
    first, shown, *rest = zip(one, two, strict=True)
    for ours, theirs in (first, shown):
        assert [line[:1] for line in ours] == [line[:1] for line in theirs]
        values, others = (
            np.array([[line[2], *line[6:]] for line in lines], np.int32)
            for lines in (ours, theirs)
        )
        np.testing.assert_allclose(
            values.view(np.float32), others.view(np.float32), rtol=1e-4
        )
    assert all(ours == theirs for ours, theirs in rest)
    assert len({str(step) for step in one[2:]}) > 1  # it does not say one thing always
    assert none == [0, 0]
    assert (reduces, gathers) == (2 * num_layers + 1, 1)


def test_joined_projections_are_cut_part_by_part():
    queries, keys, values = np.arange(4), 10 + np.arange(2), 20 + np.arange(2)
    joined = np.concatenate([queries, keys, values])[:, None]
    found = arrange(joined, ParameterSplit(0, (4, 2, 2)), 2)
    assert found[:, 0].tolist() == [0, 1, 10, 20, 2, 3, 11, 21]


def test_a_parameter_of_one_part_stays_as_it_is():
    array = np.arange(6).reshape(2, 3)
    assert arrange(array, ParameterSplit(1, (3,)), 3) is array


def test_a_split_model_has_whole_shapes_and_local_structure():
    model = split_model(CONFIG, "float32", 2)
    graphdef, shapes = abstract_parameters(CONFIG, "float32")
    assert model.shapes == shapes
    assert model.graphdef != graphdef
    assert hash(model.graphdef) == hash(split_model(CONFIG, "float32", 2).graphdef)
    specs = {path[2:]: spec for path, spec in model.specs.items() if path[1] == 0}
    assert specs["attention", "qkv", "bias"] == PartitionSpec(AXIS)
    assert specs["attention", "o", "weight"] == PartitionSpec(None, AXIS)
    assert specs["input_norm", "scale"] == PartitionSpec()


def test_what_does_not_divide_is_refused():
    with pytest.raises(UnsupportedModelError, match="not divisible by 4"):
        split_model(CONFIG, "float32", 4)


def test_roles_place_arguments():
    auto = (jax.sharding.AxisType.Auto,)  # what jax assumes differs by version
    mesh = jax.sharding.AbstractMesh((2,), (AXIS,), axis_types=auto)
    parallel = TensorParallel(mesh, {"embed": {"weight": PartitionSpec(AXIS)}})
    summed = parallel.split(
        lambda params, head, kv, same: (kv, jax.lax.psum(same * head.sum(), AXIS)),
        ("params", "head", "kv", "same"),
        ("kv", "same"),
    )
    weight = jax.ShapeDtypeStruct((4, 3), "float32")
    kv = jax.ShapeDtypeStruct((5, 2, 3), "float32")
    one = jax.ShapeDtypeStruct((), "float32")
    out = jax.eval_shape(summed, {"embed": {"weight": weight}}, weight, kv, one)
    assert [x.shape for x in out] == [(5, 2, 3), ()]
