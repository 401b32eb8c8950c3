"""Shapes as an engine's arrays would have them; no plugin is needed for that."""

import jax
import pytest
from jax.sharding import PartitionSpec

from jengine.aot.abstract import compiling_for, program_shapes, topology
from jengine.aot.survey import plan_survey, shallow
from jengine.aot.targets import find_target
from jengine.runner.sharding import AXIS
from models.registry import head_weight

OPTIONS = {"max_num_seqs": 4, "num_gpu_blocks_override": 101}


def mesh_of(devices):
    return jax.sharding.AbstractMesh((devices,), (AXIS,))


@pytest.fixture(scope="module")
def survey(make_request):
    return plan_survey(make_request(options=OPTIONS))


def test_shapes_are_those_of_the_model_and_the_pool(survey):
    shapes = program_shapes(survey, shallow(survey.model, 3), mesh_of(1))
    assert shapes.parallel is None
    assert shapes.context.split_over is None
    assert shapes.context.num_slots == 101 * 16
    assert shapes.context.max_rows == 4
    assert len(shapes.kv.layers) == 3
    assert shapes.kv.layers[0].keys.shape == (101, 8, 16, 128)
    assert shapes.kv.layers[0].keys.dtype == "bfloat16"
    assert shapes.last_token.shape == (4,)
    assert head_weight(shapes.params).shape == (128256, 4096)


def test_attention_is_that_of_the_card(survey):
    attend = program_shapes(survey, survey.model, mesh_of(1)).context.attend
    assert attend.heads == (32, 8, 128, "bfloat16")
    assert attend.target == ("sm_90", 132)
    assert not attend.interpret


def test_split_shapes_are_whole_and_say_where_they_lie(make_request):
    survey = plan_survey(make_request(options=OPTIONS, tensor_parallel_size=2))
    shapes = program_shapes(survey, shallow(survey.model, 3), mesh_of(2))
    assert shapes.parallel is not None
    assert shapes.context.split_over == AXIS
    keys = shapes.kv.layers[0].keys
    assert keys.shape == (101, 8, 16, 128)
    assert keys.sharding.spec == PartitionSpec(None, AXIS)
    qkv = shapes.params["layers"][0]["attention"]["qkv"]["weight"]
    assert qkv.shape == (6144, 4096)
    assert qkv.sharding.spec == PartitionSpec(AXIS)
    assert shapes.context.attend.heads == (16, 4, 128, "bfloat16")


@pytest.mark.aot
def test_described_cards_make_a_mesh():
    mesh = topology(find_target("h200"), 2)
    assert mesh.size == 2
    with compiling_for(mesh):
        assert jax.sharding.get_abstract_mesh() == mesh.abstract_mesh
