"""What a model asks of an attention backend: write, then attend.

One object owns the write and the attention, because both depend on the cache's
layout; a model cannot tell one backend from another.
"""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float

from models.inputs import StepInputs
from models.kv_cache import LayerCache


@runtime_checkable
class Attend(Protocol):
    """Write the step's keys and values, then attend over the cache.

    All keys and values of the step are written before any query reads, so two
    rows of one step may share a block that one of them fills.
    """

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
        """Return the attended values and the updated cache of this layer.

        Args:
          queries: rotated query heads.
          keys: rotated key heads of the same tokens.
          values: value heads of the same tokens.
          cache: this layer's cache, donated by the caller.
          inputs: the step's row and token arrays.
          scale: factor on the scores, usually `head_dim ** -0.5`.
          sliding_window: number of last positions a token sees, itself
            included; None for all.
        """
        ...
