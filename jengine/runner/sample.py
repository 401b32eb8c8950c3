"""Logits to tokens and log-probabilities: pure functions, in float32.

Order of operations: log-probabilities are those of the raw logits, unless the engine
reports processed ones; then biases and penalties (`adjust`); then the mask of allowed
ids; then the greedy choice is taken; then temperature, min-p, top-k, top-p and the
draw. No step sorts the vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, UInt32

from jengine.logprobs import LogprobsMode
from jengine.runner.filters import keep_best

_GROUP = 256  # ids that a draw's second level chooses among


class SampleMode(NamedTuple):
    """What a sampling program can do; static, so each is its own program.

    Attributes:
      random: some row draws at random; else all are greedy.
      filtered: some row has a top-k or top-p.
      masked: a mask of allowed ids is given.
      adjusted: some row has penalties or biases. Such a program does everything, so
        that there are few of them.
      num_logprobs: alternatives reported for each row; None reports nothing.
      listed: ids are given for each row that are reported besides.
      values: what is reported, the same in all programs of an engine that do.
    """

    random: bool = False
    filtered: bool = False
    masked: bool = False
    adjusted: bool = False
    num_logprobs: int | None = None
    listed: bool = False
    values: LogprobsMode = "raw_logprobs"


EVERYTHING = SampleMode(random=True, filtered=True, masked=True, adjusted=True)


class SamplingRows(NamedTuple):
    """Each row's options, see `jengine.core.plan.SamplingOptions`."""

    seed_low: Int[Array, " R"]
    seed_high: Int[Array, " R"]
    position: Int[Array, " R"]
    top_k: Int[Array, " R"]
    temperature: Float[Array, " R"]
    top_p: Float[Array, " R"]
    min_p: Float[Array, " R"]


def sample_tokens(
    logits: Float[Array, "R V"], rows: SamplingRows, mode: SampleMode
) -> Int[Array, " R"]:
    """Choose one id for each row.

    Returns:
      The ids; the vocabulary's size for a row whose logits are not numbers.
    """
    return choose(logits, rows, mode)[0]


def choose(
    logits: Float[Array, "R V"], rows: SamplingRows, mode: SampleMode
) -> tuple[Int[Array, " R"], Float[Array, "R V"]]:
    """Choose one id for each row, and say from what.

    Returns:
      The ids as `sample_tokens` does, and the logits that they were drawn by: divided
      by the temperature, minus infinity for what a filter dropped; those of a greedy
      row as they came.
    """
    greedy = argmax(logits)
    if not mode.random:
        return greedy, logits
    weights = tempered_weights(logits, rows)
    if mode.filtered:
        weights = keep_best(weights, rows.top_k, rows.top_p)
    drawn = draw(weights, uniform(rows))
    chosen = jnp.where(rows.temperature > 0, drawn, greedy)
    token = jnp.where(greedy < logits.shape[1], chosen, greedy)
    return token, _processed(logits, weights, rows)


def _processed(
    logits: Float[Array, "R V"], weights: Float[Array, "R V"], rows: SamplingRows
) -> Float[Array, "R V"]:
    # A weight may also be zero because it is too small for a float.
    filters = (rows.top_k > 0) | (rows.top_p < 1) | (rows.min_p > 0)
    kept = (weights > 0) | ~filters[:, None]
    random = (rows.temperature > 0)[:, None]
    scaled = logits / jnp.where(random, rows.temperature[:, None], 1.0)
    return jnp.where(kept | ~random, scaled, -jnp.inf)


def argmax(logits: Float[Array, "R V"]) -> Int[Array, " R"]:
    """Return the first id with the largest logit.

    V where one is NaN, and where all are minus infinity: nothing may be drawn.

    Two plain reductions: XLA's own argmax is four times slower on a CPU.
    """
    vocab_size = logits.shape[1]
    best = jnp.max(logits, axis=1, keepdims=True)
    ids = lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    is_best = (logits == best) & (best > -jnp.inf)
    return jnp.min(jnp.where(is_best, ids, vocab_size), axis=1)


def tempered_weights(
    logits: Float[Array, "R V"], rows: SamplingRows
) -> Float[Array, "R V"]:
    """Return unnormalised probabilities, the best id's being 1, after min-p."""
    safe = jnp.where(rows.temperature > 0, rows.temperature, 1.0)
    best = jnp.max(logits, axis=1, keepdims=True)
    # Infinity less infinity is no number, and the best id's weight is 1 in any case.
    scaled = jnp.where(logits == best, 0.0, (logits - best) / safe[:, None])
    weights = jnp.exp(scaled)
    return jnp.where(weights >= rows.min_p[:, None], weights, 0.0)


def uniform(rows: SamplingRows) -> Float[Array, " R"]:
    """Return one number in [0, 1) for each row, from its seed and position alone."""

    def one(high: UInt32[Array, ""], low: UInt32[Array, ""], position: Int[Array, ""]):
        key = jax.random.wrap_key_data(jnp.stack([high, low]), impl="threefry2x32")
        return jax.random.uniform(jax.random.fold_in(key, position), dtype=jnp.float32)

    high = lax.bitcast_convert_type(rows.seed_high, jnp.uint32)
    low = lax.bitcast_convert_type(rows.seed_low, jnp.uint32)
    return jax.vmap(one)(high, low, rows.position)


def draw(
    weights: Float[Array, "R V"], uniforms: Float[Array, " R"]
) -> Int[Array, " R"]:
    """Draw an id in proportion to its weight, by inverting the running sum.

    Two levels, groups of ids and then ids: one running sum over the vocabulary
    would be slower, and less exact.
    """
    num_rows, vocab_size = weights.shape
    padded = jnp.pad(weights, ((0, 0), (0, -vocab_size % _GROUP)))
    groups = padded.reshape(num_rows, -1, _GROUP)
    sums = jnp.sum(groups, axis=2)
    running = jnp.cumsum(sums, axis=1)
    target = uniforms * running[:, -1]
    group = _first_above(running, sums, target)
    pick = group[:, None]
    below = jnp.take_along_axis(running - sums, pick, axis=1)[:, 0]
    inside = jnp.take_along_axis(groups, pick[:, :, None], axis=1)[:, 0]  # [R, 256]
    member = _first_above(jnp.cumsum(inside, axis=1), inside, target - below)
    return group * _GROUP + member


def report(
    logits: Float[Array, "R V"],
    token: Int[Array, " R"],
    num_best: int,
    values: LogprobsMode,
    listed: Int[Array, "R N"] | None = None,
) -> Int[Array, "R out"]:
    """Pack what is reported about one token of each row.

    Args:
      logits: raw or processed.
      token: the ids.
      num_best: alternatives reported.
      values: whether logits are reported as they are.
      listed: further ids to report.

    Returns:
      The rank, the bits of the token's value, the best ids and the bits of their
      values, and the bits of the listed ids' values.
    """
    if values.endswith("logits"):
        norm = jnp.zeros(len(logits), jnp.float32)
    else:
        norm = jax.nn.logsumexp(logits, axis=1)
    value, rank, best, ids = token_logprobs(logits, token, num_best, norm)
    out = [rank[:, None], _bits(value)[:, None], ids, _bits(best)]
    if listed is not None:
        found = jnp.take_along_axis(logits, listed, axis=1)
        out.append(_bits(found - norm[:, None]))
    return jnp.concatenate(out, axis=1)


def _bits(values: Float[Array, "..."]) -> Int[Array, "..."]:
    return lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)


def token_logprobs(
    logits: Float[Array, "R V"],
    token: Int[Array, " R"],
    num_logprobs: int,
    norm: Float[Array, " R"] | None = None,
) -> tuple[
    Float[Array, " R"], Int[Array, " R"], Float[Array, "R L"], Int[Array, "R L"]
]:
    """Return log-probabilities, or other logits less a number of each row.

    Args:
      logits: of each id.
      token: one id of each row.
      num_logprobs: how many best ids to find.
      norm: what is taken off logits; None takes what makes them log-probabilities.

    Returns:
      The token's value, its rank (one more than the ids with a larger value), and
      the best values with their ids, best first.
    """
    if norm is None:
        norm = jax.nn.logsumexp(logits, axis=1)
    pick = jnp.minimum(token, logits.shape[1] - 1)[:, None]
    chosen = jnp.take_along_axis(logits, pick, axis=1)
    rank = 1 + jnp.sum(logits > chosen, axis=1, dtype=jnp.int32)
    best, ids = lax.top_k(logits, num_logprobs)
    return chosen[:, 0] - norm, rank, best - norm[:, None], ids


def apply_mask(
    logits: Float[Array, "R V"], mask: Int[Array, "R W"]
) -> Float[Array, "R V"]:
    """Set the logits of ids whose bit is 0 to minus infinity."""
    shifts = jnp.arange(32, dtype=jnp.int32)
    bits = lax.shift_right_logical(
        mask[:, :, None], jnp.broadcast_to(shifts, (*mask.shape, 32))
    )
    allowed = (bits & 1).reshape(mask.shape[0], -1)[:, : logits.shape[1]]
    return jnp.where(allowed == 1, logits, -jnp.inf)


def _first_above(
    running: Float[Array, "R N"],
    weights: Float[Array, "R N"],
    target: Float[Array, " R"],
) -> Int[Array, " R"]:
    """First index with weight whose running sum exceeds the target.

    Rounding may leave none: then the last one with weight.
    """
    size = weights.shape[1]
    ids = lax.broadcasted_iota(jnp.int32, weights.shape, 1)
    above = (running > target[:, None]) & (weights > 0)
    first = jnp.min(jnp.where(above, ids, size), axis=1)
    last = jnp.max(jnp.where(weights > 0, ids, 0), axis=1)
    return jnp.where(first < size, first, last)
