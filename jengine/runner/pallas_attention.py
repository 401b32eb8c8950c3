"""The attention backend of NVIDIA GPUs: Pallas kernels over the paged cache."""

import dataclasses
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from jengine.errors import UnsupportedError
from jengine.runner.device import GpuTarget
from kernels_pallas.paged_attention import (
    AttentionMetadata,
    Tiling,
    attention_metadata,
    pallas_attention,
    tiling_for,
    write_kv,
)
from models.inputs import StepInputs
from models.kv_cache import LayerCache

# Interpreted kernels have the tiles of a common card, so that tests on a CPU run
# the very work items that such a card would.
INTERPRETED = GpuTarget(architecture="sm_90", num_sms=132)


class HeadShape(NamedTuple):
    """The attention heads that one device runs.

    Attributes:
      num_heads: query heads.
      num_kv_heads: key and value heads.
      head_dim: features of a head.
      dtype: name of the dtype of queries and cache.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class PallasAttend:
    """Write, then the ragged kernels: split-KV for decodes, query tiles for the rest.

    Attributes:
      heads: the heads of the model.
      target: the GPU whose tiles are used.
      interpret: run the kernels step by step in XLA, on any device; for tests.
    """

    heads: HeadShape
    target: GpuTarget
    interpret: bool = False

    def __post_init__(self) -> None:
        """Refuse heads or a GPU that the kernels have no tiles for.

        Raises:
          UnsupportedError: see above.
        """
        try:
            self.tiling(num_tokens=1, num_rows=1)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def prepare(self, inputs: StepInputs) -> AttentionMetadata:
        """Cut the step into the kernels' work items."""
        return attention_metadata(
            inputs.query_start_loc,
            num_tokens=inputs.token_ids.shape[0],
            group=self.heads.num_heads // self.heads.num_kv_heads,
            tiling=self._tiling_of(inputs),
            single_token_rows=inputs.single_token_rows,
        )

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
        out: Any = pallas_attention(
            queries,
            *written,
            inputs.block_tables,
            inputs.query_start_loc,
            inputs.seq_lens,
            inputs.attention_metadata,
            scale=scale,
            tiling=self._tiling_of(inputs),
            sliding_window=sliding_window,
            single_token_rows=inputs.single_token_rows,
            interpret=self.interpret,
        )
        return out, LayerCache(*written)

    def tiling(self, *, num_tokens: int, num_rows: int) -> Tiling:
        """Return the tiles of steps of one size, in padded tokens and rows."""
        heads = self.heads
        return tiling_for(
            architecture=self.target.architecture,
            head_dim=heads.head_dim,
            group=heads.num_heads // heads.num_kv_heads,
            dtype=heads.dtype,
            num_tokens=num_tokens,
            num_rows=num_rows,
            num_kv_heads=heads.num_kv_heads,
            num_sms=self.target.num_sms,
        )

    def _tiling_of(self, inputs: StepInputs) -> Tiling:
        return self.tiling(
            num_tokens=inputs.token_ids.shape[0], num_rows=inputs.seq_lens.shape[0]
        )
