"""A loaded model with a cache, below the engine."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from jengine.checkpoint import open_checkpoint
from jengine.runner.attention import XlaAttend
from jengine.runner.cache import allocate
from jengine.runner.load import LoadedModel, load_model
from jengine.runner.step import StepContext
from models.config import ModelConfig
from models.kv_cache import KVCache

NUM_BLOCKS, BLOCK_SIZE, SEATS = 9, 4, 3


class Loaded(NamedTuple):
    """A model of 2 layers, and what all its programs share.

    Attributes:
      model: its parameters are on the device.
      context: 9 blocks of 4 tokens, 4 rows.
    """

    model: LoadedModel
    context: StepContext

    @property
    def params(self) -> dict[str, Any]:
        return self.model.params

    def new_cache(self) -> KVCache:
        return allocate(
            self.model.config,
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            dtype="float32",
            device=jax.local_devices()[0],
        )

    def last_token(self, *ids: int) -> jax.Array:
        return jnp.asarray(ids or [0] * SEATS, jnp.int32)


@pytest.fixture(scope="session")
def loaded(f2_dir) -> Loaded:
    checkpoint = open_checkpoint(f2_dir)
    config = ModelConfig.from_hf(dict(checkpoint.config))
    model = load_model(checkpoint, config, "float32", jax.local_devices()[0])
    context = StepContext(
        graphdef=model.graphdef,
        attend=XlaAttend(),
        block_size=BLOCK_SIZE,
        num_slots=NUM_BLOCKS * BLOCK_SIZE,
        max_rows=4,
    )
    return Loaded(model, context)
