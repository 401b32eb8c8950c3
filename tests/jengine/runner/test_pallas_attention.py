"""How the backend cuts a step; what it computes is tested with the other backends."""

import jax.numpy as jnp
import numpy as np
import pytest

from jengine.errors import UnsupportedError
from jengine.runner.device import GpuTarget
from jengine.runner.pallas_attention import INTERPRETED, HeadShape, PallasAttend
from models.inputs import StepInputs

HEADS = HeadShape(num_heads=8, num_kv_heads=2, head_dim=64, dtype="bfloat16")


def _inputs(counts, *, tokens, single):
    starts = np.cumsum([0, *counts])
    integers = {
        "token_ids": np.zeros(tokens),
        "positions": np.zeros(tokens),
        "slot_mapping": np.zeros(tokens),
        "query_start_loc": starts,
        "seq_lens": counts,
        "block_tables": np.zeros((len(counts), 4)),
        "logits_indices": np.zeros(len(counts)),
    }
    arrays = {name: jnp.asarray(v, jnp.int32) for name, v in integers.items()}
    return StepInputs(**arrays, single_token_rows=single)


def test_a_step_of_single_tokens_has_no_tiles():
    metadata = PallasAttend(HEADS, INTERPRETED).prepare(
        _inputs([1, 1], tokens=2, single=True)
    )
    assert metadata.tile_rows.shape == (0,)


@pytest.mark.parametrize("target", [INTERPRETED, GpuTarget("sm_80", 108)])
def test_every_token_of_a_long_row_has_a_tile(target):
    backend = PallasAttend(HEADS, target)
    counts = [1, 40, 3]
    metadata = backend.prepare(_inputs(counts, tokens=48, single=False))
    rows = np.asarray(metadata.tile_rows)
    assert set(rows[rows >= 0].tolist()) == {1, 2}
    firsts = np.asarray(metadata.tile_tokens)[rows >= 0]
    assert {1, 41} <= set(firsts.tolist())  # where the rows begin
    assert firsts.max() < 44


def test_backends_are_values():
    assert PallasAttend(HEADS, INTERPRETED) == PallasAttend(HEADS, INTERPRETED)
    other = PallasAttend(HEADS, GpuTarget("sm_80", 108))
    assert other != PallasAttend(HEADS, INTERPRETED)


def test_heads_without_tiles_are_refused_when_the_backend_is_made():
    wide = HEADS._replace(head_dim=512)
    needed = r"512 features.*attention_backend='xla'"
    with pytest.raises(UnsupportedError, match=needed):
        PallasAttend(wide, INTERPRETED)
    with pytest.raises(UnsupportedError, match="sm_75 is too old"):
        PallasAttend(HEADS, GpuTarget("sm_75", 40))
