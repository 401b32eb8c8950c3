"""Attention backends: each owns the cache's layout, the write and the attention."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float

from jengine.runner.device import GpuTarget
from jengine.runner.pallas_attention import INTERPRETED, HeadShape, PallasAttend
from kernels_pallas.paged_attention import (
    XlaMetadata,
    paged_attention,
    write_kv,
    xla_metadata,
)
from models.inputs import StepInputs
from models.kv_cache import LayerCache
from models.layers.attention_backend import Attend


@runtime_checkable
class AttentionBackend(Attend, Protocol):
    """What runs a model's attention, and prepares each step for it."""

    def prepare(self, inputs: StepInputs) -> Any:
        """Return what depends on the step alone, a pytree or None.

        Called once a step, before the layers, which find the result in
        `inputs.attention_metadata`.
        """
        ...


@dataclasses.dataclass(frozen=True)
class XlaAttend:
    """Scatter, then attention in plain XLA: runs everywhere."""

    def prepare(self, inputs: StepInputs) -> XlaMetadata:
        """Sort the rows by length."""
        return xla_metadata(inputs.query_start_loc, inputs.seq_lens)

    def __call__(
        self,
        queries: Float[Array, "T H D"],
        keys: Float[Array, "T K D"],
        values: Float[Array, "T K D"],
        cache: LayerCache,
        inputs: StepInputs,
        *,
        scale: float,
        sliding_window: int | None,
    ) -> tuple[Float[Array, "T H D"], LayerCache]:
        """Write, then attend; see `models.layers.attention_backend.Attend`."""
        written = write_kv(cache.keys, cache.values, keys, values, inputs.slot_mapping)
        # Reading the array that the write returns, not the one before it, is what
        # lets XLA update the cache in place.
        out = paged_attention(
            queries,
            *written,
            inputs.block_tables,
            inputs.query_start_loc,
            inputs.seq_lens,
            inputs.attention_metadata,
            scale=scale,
            sliding_window=sliding_window,
            single_token_rows=inputs.single_token_rows,
        )
        return out, LayerCache(*written)


def attention_backend(
    name: str, heads: HeadShape, target: GpuTarget | None
) -> AttentionBackend:
    """Return the backend of this name.

    Args:
      name: "xla" or "pallas"; what "auto" means is decided before.
      heads: the attention heads of the model.
      target: the GPU that will run the programs; None where there is none, and then
        the Pallas kernels are interpreted.

    Raises:
      ValueError: there is no such backend.
    """
    match name:
        case "xla":
            return XlaAttend()
        case "pallas":
            return PallasAttend(heads, target or INTERPRETED, interpret=target is None)
    raise ValueError(f"attention_backend is {name!r}; use 'xla' or 'pallas'")
