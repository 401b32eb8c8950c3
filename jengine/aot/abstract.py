"""The arguments of an engine's programs as shapes on a described card.

`topology` asks the CUDA plugin for devices that do not exist; shapes that lie on
them are lowered and compiled like arrays on real ones.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from jengine.aot.survey import Survey
from jengine.aot.targets import Target, target_config_text
from jengine.runner.attention import AttentionBackend, attention_backend
from jengine.runner.device import GpuTarget
from jengine.runner.pallas_attention import HeadShape
from jengine.runner.programs import ProgramShapes
from jengine.runner.sharding import AXIS, KV_SPEC, TensorParallel, split_model
from jengine.runner.step import StepContext
from models.config import ModelConfig
from models.kv_cache import KVCache, LayerCache
from models.registry import abstract_parameters, nest


def topology(target: Target, devices: int) -> jax.sharding.Mesh:
    """Return cards that are only described, as a mesh of one axis.

    Raises:
      RuntimeError: the CUDA plugin is not there.
    """
    described = topologies.get_topology_desc(
        platform="cuda",
        target_config=target_config_text(target),
        topology=f"1x1x{devices}",
    )
    return topologies.make_mesh(
        topo=described, mesh_shape=(devices,), axis_names=(AXIS,)
    )


@contextlib.contextmanager
def compiling_for(mesh: jax.sharding.Mesh) -> Iterator[None]:
    """Let what is lowered inside see the mesh's devices, not this machine's."""
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        yield


def program_shapes(
    survey: Survey,
    model: ModelConfig,
    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
) -> ProgramShapes:
    """Return what all programs take.

    Args:
      survey: sizes, options and card.
      model: the survey's model, or one with fewer layers.
      mesh: where the arguments lie.
    """
    shards, dtype = mesh.size, survey.resolved.dtype
    if shards == 1:
        graphdef, shapes = abstract_parameters(model, dtype)
        specs: dict[Any, Any] = dict.fromkeys(shapes, PartitionSpec())
        kv_spec, parallel = PartitionSpec(), None
    else:
        graphdef, shapes, specs = split_model(model, dtype, shards)
        kv_spec, parallel = KV_SPEC, TensorParallel(mesh, nest(specs))

    def place(shape: tuple[int, ...], kind: Any, spec: PartitionSpec) -> Any:
        return jax.ShapeDtypeStruct(shape, kind, sharding=NamedSharding(mesh, spec))

    block_size, seats = survey.resolved.block_size, survey.resolved.max_num_seqs
    cache = place(
        (survey.num_blocks, model.num_kv_heads, block_size, model.head_dim),
        jnp.dtype(dtype),
        kv_spec,
    )
    context = StepContext(
        graphdef=graphdef,
        attend=attention_of(survey),
        block_size=block_size,
        num_slots=survey.num_blocks * block_size,
        max_rows=survey.buckets.max_rows,
        split_over=None if parallel is None else AXIS,
    )
    return ProgramShapes(
        context=context,
        params=nest(
            {path: place(s.shape, s.dtype, specs[path]) for path, s in shapes.items()}
        ),
        kv=KVCache((LayerCache(cache, cache),) * model.num_layers),
        last_token=place((seats,), jnp.int32, PartitionSpec()),
        parallel=parallel,
    )


def attention_of(survey: Survey) -> AttentionBackend:
    """Return the attention that runs on the card, for the heads of one card."""
    model, target = survey.model, survey.target
    shards = survey.request.tensor_parallel_size
    heads = HeadShape(
        model.num_heads // shards,
        model.num_kv_heads // shards,
        model.head_dim,
        survey.resolved.dtype,
    )
    gpu = GpuTarget(target.architecture, target.num_sms)
    return attention_backend(survey.resolved.attention_backend, heads, gpu)
