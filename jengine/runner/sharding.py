"""Tensor parallelism: one program over several devices, split by hand.

The whole step runs inside `shard_map`: each device runs the model on its heads,
features and ids, kernels included, and every collective is one that the model asks
for. The KV cache is split by heads; token ids, tables and hidden states are the same
everywhere. `arrange` orders the rows of joined projections so that cutting them
evenly gives each device its own queries, keys and values.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec

from models.config import ModelConfig
from models.registry import abstract_parameters, head_weight, nest
from models.split import ParameterSplit, connect, local_config, parameter_split

AXIS = "tensor"
KV_SPEC = PartitionSpec(None, AXIS)  # [N, K, B, D], of every layer


class TensorParallel(NamedTuple):
    """How programs are split.

    Attributes:
      mesh: the devices, in one axis named `AXIS`.
      params: the placement of each parameter, nested as they are.
    """

    mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh
    params: dict[str, Any]

    def split(
        self,
        function: Callable[..., Any],
        roles: Sequence[str],
        out_roles: Sequence[str] | str,
    ) -> Callable[..., Any]:
        """Return the function of whole arrays that runs `function` on each device.

        Args:
          function: of one device's parts.
          roles: what each argument is: "params", "head" or "kv", which are split, or
            "same", of which every device has all.
          out_roles: what each result is; one word for one result.
        """
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=tuple(self._spec(role) for role in roles),
            out_specs=(
                self._spec(out_roles)
                if isinstance(out_roles, str)
                else tuple(self._spec(role) for role in out_roles)
            ),
            # That all devices sample the same token is not for the checker to see.
            check_vma=False,
        )

    def _spec(self, role: str) -> Any:
        match role:
            case "params":
                return self.params
            case "head":
                return head_weight(self.params)
            case "kv":
                return KV_SPEC
        return PartitionSpec()


class SplitModel(NamedTuple):
    """A model without its numbers, split over devices.

    Attributes:
      graphdef: the structure that each device runs.
      shapes: the whole parameters, by path.
      specs: their placements, by path.
    """

    graphdef: nnx.GraphDef
    shapes: dict[tuple[str | int, ...], jax.ShapeDtypeStruct]
    specs: dict[tuple[str | int, ...], PartitionSpec]


def split_model(config: ModelConfig, dtype: Any, shards: int) -> SplitModel:
    """Describe a model on several devices; allocates nothing.

    Args:
      config: the whole model.
      dtype: of all parameters.
      shards: number of devices.

    Raises:
      UnsupportedModelError: a size does not divide by the number of devices.
    """
    graphdef, parts = abstract_parameters(local_config(config, shards), dtype)
    module = nnx.merge(graphdef, nest(parts))
    connect(module, AXIS)
    _, shapes = abstract_parameters(config, dtype)
    splits = {path: parameter_split(config, path) for path in shapes}
    specs = {path: _spec(split) for path, split in splits.items()}
    return SplitModel(nnx.split(module)[0], shapes, specs)


def arrange(array: np.ndarray, split: ParameterSplit, shards: int) -> np.ndarray:
    """Order a whole parameter so that even pieces are what each device needs.

    Joined projections lie one after another, queries, keys, values; an even cut
    would give the first device queries only.

    Args:
      array: the parameter.
      split: how it is split.
      shards: number of devices.

    Returns:
      Of each part the first piece, then of each part the second, and so on.
    """
    if len(split.parts) == 1:
        return array
    borders = np.cumsum(split.parts)[:-1]
    pieces = [
        np.split(part, shards, axis=split.axis)
        for part in np.split(array, borders, axis=split.axis)
    ]
    ordered = [piece for shard in zip(*pieces, strict=True) for piece in shard]
    return np.concatenate(ordered, axis=split.axis)


def _spec(split: ParameterSplit | None) -> PartitionSpec:
    if split is None:
        return PartitionSpec()
    return PartitionSpec(*[None] * split.axis, AXIS)
