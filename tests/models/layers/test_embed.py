import jax.numpy as jnp
import numpy as np

from models.layers.embed import Embed


def test_rows_of_the_table():
    embed = Embed(6, 4, dtype=jnp.dtype("float32"))
    table = np.arange(24, dtype=np.float32).reshape(6, 4)
    embed.weight[...] = jnp.asarray(table)
    found = embed(jnp.asarray([5, 0, 5, 2], jnp.int32))
    np.testing.assert_array_equal(found, table[[5, 0, 5, 2]])
