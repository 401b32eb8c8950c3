"""The pure functions that are compiled: forward, sample, and both in one program.

    forward(params, kv, last_token, ints)       -> kv', hidden, tokens    kv donated
    sample(head, last_token, hidden, rows[, mask, tables, listed])
                                                -> last_token', out, tables'

Forward and sample are separate so that the host can work between them, and so
that their programs add up instead of multiplying. `decode_step` is both in one:
the hot path. What is static (sizes, modes, the model's structure) is bound before
tracing; nothing in here looks at data to decide what to run.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jengine.runner.adjust import Penalties, SeatTables, adjust, count_tokens
from jengine.runner.attention import AttentionBackend
from jengine.runner.bucket import StepBucket
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.sample import (
    SampleMode,
    SamplingRows,
    apply_mask,
    choose,
    report,
)
from kernels_pallas.paged_attention.reference import row_of_tokens
from models.inputs import StepInputs
from models.kv_cache import KVCache
from models.layers.linear import matmul
from models.registry import bind, head_weight


class StepContext(NamedTuple):
    """What all programs of an engine share; static.

    Attributes:
      graphdef: the model's structure.
      attend: the attention backend.
      block_size: tokens in a block.
      num_slots: slots in the cache; one past the last of them drops a write.
      max_rows: rows of the hidden states that pass from forward to sample.
      split_over: name of the mesh axis that the program is split over; see `sample`.
    """

    graphdef: Any
    attend: AttentionBackend
    block_size: int
    num_slots: int
    max_rows: int
    split_over: str | None = None


def unpack_inputs(
    context: StepContext,
    bucket: StepBucket,
    ints: Int[Array, " S"],
    last_token: Int[Array, " seats"],
) -> StepInputs:
    """Take the forward buffer apart; positions and slots are derived here."""
    layout = forward_layout(bucket)
    packed = ints[layout.token_ids]
    starts, lens = ints[layout.query_start_loc], ints[layout.seq_lens]
    tables = ints[layout.block_tables].reshape(bucket.rows, bucket.table_width)
    seat = jnp.maximum(-packed - 1, 0)
    carried = last_token.at[seat].get(mode="clip", wrap_negative_indices=False)
    token = jnp.arange(bucket.tokens, dtype=jnp.int32)
    real = token < starts[-1]
    row = token if bucket.single_token_rows else row_of_tokens(starts, bucket.tokens)
    row = jnp.minimum(row, bucket.rows - 1)
    position = jnp.where(real, lens[row] - starts[row + 1] + token, 0)
    block = tables[row, lax.div(position, np.int32(context.block_size))]
    offset = lax.rem(position, np.int32(context.block_size))
    return StepInputs(
        token_ids=jnp.where(packed < 0, carried, packed),
        positions=position,
        slot_mapping=jnp.where(
            real, block * context.block_size + offset, context.num_slots
        ),
        query_start_loc=starts,
        seq_lens=lens,
        block_tables=tables,
        logits_indices=ints[layout.logits_indices],
        single_token_rows=bucket.single_token_rows,
    )


def forward(
    context: StepContext,
    bucket: StepBucket,
    params: dict[str, Any],
    kv: KVCache,
    last_token: Int[Array, " seats"],
    ints: Int[Array, " S"],
) -> tuple[KVCache, Float[Array, "max_rows M"], Float[Array, "T M"]]:
    """Run the model over one step.

    Args:
      context: static.
      bucket: static; the sizes that `ints` is laid out for.
      params: the model's parameters.
      kv: the cache, donated.
      last_token: the token last sampled at each seat.
      ints: the packed step.

    Returns:
      The cache; the hidden states that the sampler reads, padded with zeros to
      `max_rows` so that one family of sampling programs serves all steps; and those
      of all tokens, which reports about prompts read.
    """
    inputs = unpack_inputs(context, bucket, ints, last_token)
    metadata = context.attend.prepare(inputs)
    inputs = dataclasses.replace(inputs, attention_metadata=metadata)
    model = bind(context.graphdef, params)
    states, kv = model(inputs, kv, context.attend)
    hidden = _wanted_rows(states, inputs)
    missing = context.max_rows - bucket.rows
    return kv, jnp.pad(hidden, ((0, missing), (0, 0))), states


def _wanted_rows(x: Float[Array, "T M"], inputs: StepInputs) -> Float[Array, "R M"]:
    if inputs.single_token_rows:
        return x
    return x.at[inputs.logits_indices].get(mode="clip", wrap_negative_indices=False)


def sample(  # noqa: PLR0913, PLR0917 - what a draw depends on
    mode: SampleMode,
    head: Float[Array, "V M"],
    last_token: Int[Array, " seats"],
    hidden: Float[Array, "max_rows M"],
    packed: Int[Array, "R columns"],
    mask: Int[Array, "R words"] | None = None,
    tables: SeatTables | None = None,
    listed: Int[Array, "R N"] | None = None,
    *,
    split_over: str | None = None,
) -> tuple[Int[Array, " seats"], Int[Array, "R out"], SeatTables | None]:
    """Choose the next token of each sampling row.

    Args:
      mode: static.
      head: weight from hidden states to logits.
      last_token: updated at the rows' seats; donated.
      hidden: hidden states, in the order of the sampling rows.
      packed: the rows, see `SamplingColumn`.
      mask: which ids each row may draw, one bit an id; None where all may.
      tables: what adjusts the logits, for a mode that does; donated.
      listed: ids to report besides, for a mode that does.
      split_over: mesh axis over which the vocabulary of `head` is split: logits are
        gathered, and every device chooses the same tokens. None where it is whole.

    Returns:
      `last_token`, and for each row its id (the vocabulary's size where the logits
      are not numbers), then what `report` says of it if the mode reports. Then the
      tables, with what was drawn.
    """
    logits = matmul(hidden[: len(packed)], head, out_dtype=jnp.dtype(jnp.float32))
    if split_over is not None:
        logits = lax.all_gather(logits, split_over, axis=1, tiled=True)
    seats, allowed = packed[:, SamplingColumn.SEAT], logits
    if tables is not None:
        biased = packed[:, SamplingColumn.BIASED]
        allowed = adjust(logits, tables, seats, _penalties(packed), biased)
    if mask is not None:
        allowed = apply_mask(allowed, mask)
    token, processed = choose(allowed, _rows(packed), mode)
    kept = jnp.minimum(token, logits.shape[1] - 1)
    last_token = last_token.at[seats].set(kept, mode="drop")
    if tables is not None:
        counts = count_tokens(tables.counts, seats, token)
        tables = tables._replace(counts=counts)
    out = [token[:, None]]
    if mode.num_logprobs is not None:
        shown = logits if mode.values.startswith("raw") else processed
        out.append(report(shown, token, mode.num_logprobs, mode.values, listed))
    return last_token, jnp.concatenate(out, axis=1), tables


def decode_step(  # noqa: PLR0913, PLR0917 - forward's and sample's together
    context: StepContext,
    bucket: StepBucket,
    mode: SampleMode,
    params: dict[str, Any],
    kv: KVCache,
    last_token: Int[Array, " seats"],
    ints: Int[Array, " S"],
    packed: Int[Array, "R columns"],
) -> tuple[KVCache, Int[Array, " seats"], Int[Array, "R out"]]:
    """Run forward and sample in one program; `kv` and `last_token` are donated."""
    exact = context._replace(max_rows=bucket.rows)
    kv, hidden, _ = forward(exact, bucket, params, kv, last_token, ints)
    head, over = head_weight(params), context.split_over
    last_token, out, _ = sample(mode, head, last_token, hidden, packed, split_over=over)
    return kv, last_token, out


def _number(
    packed: Int[Array, "R columns"], column: SamplingColumn
) -> Float[Array, " R"]:
    return lax.bitcast_convert_type(packed[:, column], jnp.float32)


def _penalties(packed: Int[Array, "R columns"]) -> Penalties:
    return Penalties(
        presence=_number(packed, SamplingColumn.PRESENCE),
        frequency=_number(packed, SamplingColumn.FREQUENCY),
        repetition=_number(packed, SamplingColumn.REPETITION),
    )


def _rows(packed: Int[Array, "R columns"]) -> SamplingRows:
    return SamplingRows(
        seed_low=packed[:, SamplingColumn.SEED_LOW],
        seed_high=packed[:, SamplingColumn.SEED_HIGH],
        position=packed[:, SamplingColumn.POSITION],
        top_k=packed[:, SamplingColumn.TOP_K],
        temperature=_number(packed, SamplingColumn.TEMPERATURE),
        top_p=_number(packed, SamplingColumn.TOP_P),
        min_p=_number(packed, SamplingColumn.MIN_P),
    )
