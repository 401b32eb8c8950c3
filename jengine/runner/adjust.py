"""Penalties and biases: what a request's history and wishes do to its logits.

Both are kept by seat on the device: how often each id was drawn, because with one
step ahead the host does not know the last token yet, and what is added to each logit,
because it never changes. A seat's rows are set when a request takes it that needs
them; other requests leave the rows as they are, and unread.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jengine.core.plan import SamplingOptions
from jengine.runner.device import Device

LARGEST = 1e30  # of an adjusted logit: sums and differences of two are finite
IN_PROMPT = 1 << 24  # added to the count of an id that the prompt holds


class SeatTables(NamedTuple):
    """What adjusts the logits of each seat.

    Attributes:
      counts: times that each id is in the output, and `IN_PROMPT`.
      bias: what is added to each logit.
    """

    counts: Int[Array, "seats V"]
    bias: Float[Array, "seats V"]


class Penalties(NamedTuple):
    """Each row's penalties, see `jengine.core.plan.SamplingOptions`."""

    presence: Float[Array, " R"]
    frequency: Float[Array, " R"]
    repetition: Float[Array, " R"]


def count_row(
    history: tuple[int, ...], num_prompt_tokens: int, vocab_size: int
) -> np.ndarray:
    """Return a seat's counts for the tokens that are known when it is taken."""
    prompt = np.array(history[:num_prompt_tokens], np.int64)
    output = np.array(history[num_prompt_tokens:], np.int64)
    counts = np.bincount(output, minlength=vocab_size).astype(np.int32)
    counts[prompt] += IN_PROMPT  # once, however often the prompt holds it
    return counts


def bias_row(options: SamplingOptions, vocab_size: int) -> np.ndarray:
    """Return what is added to a seat's logits: minus infinity forbids an id."""
    allowed = options.allowed_token_ids
    row = np.zeros(vocab_size, np.float32)
    if allowed is not None:
        row[:] = -np.inf
        row[list(allowed)] = 0
    row[list(options.banned_token_ids)] = -np.inf
    for token_id, bias in options.logit_bias:
        row[token_id] += min(LARGEST, max(-LARGEST, bias))
    return row


def set_seat(
    tables: SeatTables,
    seat: Int[Array, ""],
    counts: Int[Array, " V"],
    bias: Float[Array, " V"],
) -> SeatTables:
    """Replace a seat's rows; `tables` is donated."""
    return SeatTables(
        tables.counts.at[seat].set(counts), tables.bias.at[seat].set(bias)
    )


def adjust(
    logits: Float[Array, "R V"],
    tables: SeatTables,
    seats: Int[Array, " R"],
    penalties: Penalties,
    biased: Int[Array, " R"],
) -> Float[Array, "R V"]:
    """Add the biases, then penalise what came before.

    Repetition counts prompt and output, once for each id; frequency and presence
    count the output. In this order.

    Args:
      logits: as the model gave them.
      tables: by seat.
      seats: of each row; past the end for padding rows.
      penalties: of each row.
      biased: of each row, whether its seat's biases are its own (1) or stale (0).

    Source: OpenAI's API reference for frequency and presence; Keskar et al. 2019,
    arXiv:1909.05858, for repetition.
    """
    bias = tables.bias.at[seats].get(mode="fill", fill_value=0.0)
    counts = tables.counts.at[seats].get(mode="fill", fill_value=0)
    logits = jnp.where((biased == 1)[:, None], logits + bias, logits)
    repetition = jnp.where(counts > 0, penalties.repetition[:, None], 1.0)
    penalised = jnp.where(logits > 0, logits / repetition, logits * repetition)
    # An absurd penalty may not turn a logit into infinity, which no draw survives.
    logits = jnp.where(
        jnp.isfinite(logits), jnp.clip(penalised, -LARGEST, LARGEST), logits
    )
    drawn = counts & (IN_PROMPT - 1)
    logits -= penalties.frequency[:, None] * drawn.astype(jnp.float32)
    return logits - jnp.where(drawn > 0, penalties.presence[:, None], 0.0)


def count_tokens(
    counts: Int[Array, "seats V"], seats: Int[Array, " R"], tokens: Int[Array, " R"]
) -> Int[Array, "seats V"]:
    """Count what was drawn; padding rows and failed ones are dropped."""
    return counts.at[seats, tokens].add(1, mode="drop")


def new_tables(num_seats: int, vocab_size: int, device: Device) -> SeatTables:
    """Return tables of zeros on a device.

    Copied there, because zeros made there would be one more program to compile.
    """
    shape = (num_seats, vocab_size)
    return SeatTables(
        jax.device_put(np.zeros(shape, np.int32), device),
        jax.device_put(np.zeros(shape, np.float32), device),
    )


def table_shapes(num_seats: int, vocab_size: int, sharding: Any) -> Any:
    """Return the shapes and places of the tables, as a `SeatTables`."""
    fields = {"counts": jnp.int32, "bias": jnp.float32}
    shapes: Any = {
        name: jax.ShapeDtypeStruct((num_seats, vocab_size), dtype, sharding=sharding)
        for name, dtype in fields.items()
    }
    return SeatTables(**shapes)
