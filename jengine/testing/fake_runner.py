"""A runner without a model: it checks every plan, and its tokens are known ahead.

It stands in for `jengine.runner` and keeps what a device keeps: one entry for each
slot of the cache, and the last token of each seat. A sampled token is a hash of
the whole context, read back through the row's block table, so that a wrong block,
position, seat or option changes the output. Imports no jax and no numpy.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from jengine.core.block_pool import NULL_BLOCK
from jengine.core.plan import (
    SamplingOptions,
    ScheduledRequest,
    StepPlan,
    StepResult,
    TokenLogprobs,
)

_WORD = 2**64 - 1
_MULTIPLIER = 6364136223846793005  # of Knuth's MMIX generator
_INCREMENT = 1442695040888963407


class PlanError(ValueError):
    """A plan that a device could not run, or would run wrongly."""


class CachedToken(NamedTuple):
    """What a slot of the cache holds.

    Attributes:
      token_id: the token.
      position: its index in its own sequence.
      chain: a number that depends on the token and on all before it.
    """

    token_id: int
    position: int
    chain: int


class FakeHandle(NamedTuple):
    """A step in flight; its result is known at once, but not for `collect`."""

    result: StepResult


@dataclasses.dataclass(slots=True)
class _Seat:
    request_id: str
    options: SamplingOptions
    block_table: list[int]
    context: list[CachedToken]
    sampled: int | None = None
    has_failed: bool = False


class FakeRunner:
    """Runs plans against a simulated cache, as `jengine.engine.Runner` asks."""

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        token_budget: int,
        max_num_seqs: int,
        vocab_size: int = 100,
        poison: frozenset[int] = frozenset(),
    ) -> None:
        """Make an empty cache.

        Args:
          num_blocks: KV blocks, the null block included.
          block_size: tokens in a block.
          token_budget: most tokens of a step.
          max_num_seqs: seats, and most rows of a step.
          vocab_size: sampled ids are smaller.
          poison: ids whose logits, and those of all later tokens, are no numbers.
        """
        self.block_size = block_size
        self.vocab_size = vocab_size
        self._num_blocks = num_blocks
        self._token_budget = token_budget
        self._poison = poison
        self._max_num_seqs = max_num_seqs
        self.reset()

    def reset(self) -> None:
        """Forget all seats and the whole cache."""
        num_slots = self._num_blocks * self.block_size
        self.cache: list[CachedToken | None] = [None] * num_slots
        self._seats: list[_Seat | None] = [None] * self._max_num_seqs
        self._last_step = -1

    def dispatch(
        self,
        plan: StepPlan,
        *,
        awaits_masks: bool = False,  # noqa: ARG002 - the real runner's signature
    ) -> FakeHandle:
        """Check a plan and run it; masks change nothing here.

        Raises:
          PlanError: the plan breaks the contract; the message says how.
        """
        self._check_shape(plan)
        for row in plan.rows:
            self._take_seat(row)
        self._check_writes(plan)
        # A row that hits a block of this very step starts after the row that
        # fills it, so this order finds every prefix written.
        for row in sorted(plan.rows, key=lambda row: row.num_computed_tokens):
            self._write(row)
        return FakeHandle(self._sample(plan))

    def draw(
        self,
        handle: FakeHandle,
        constraints: Sequence[object],  # noqa: ARG002 - likewise
    ) -> FakeHandle:
        """Return the handle: what is drawn has been decided."""
        return handle

    def collect(self, handle: FakeHandle) -> StepResult:
        """Return a step's result."""
        return handle.result

    def _check_shape(self, plan: StepPlan) -> None:
        rows = plan.rows
        counts = [row.num_tokens for row in rows]
        single = plan.num_single_token_rows
        _require(plan.step > self._last_step, f"step {plan.step} comes too late")
        self._last_step = plan.step
        _require(all(counts), "a row runs no token")
        _require(sum(counts) == plan.num_tokens, "num_tokens is not the rows' sum")
        _require(plan.num_tokens <= self._token_budget, "more tokens than the budget")
        _require(set(counts[:single]) <= {1}, "a long row among the single ones")
        _require(1 not in counts[single:], "a single token among the long rows")
        _require(_are_distinct([row.seat for row in rows]), "a seat has two rows")
        _require(
            _are_distinct([row.request_id for row in rows]), "a request runs twice"
        )

    def _take_seat(self, row: ScheduledRequest) -> None:
        """Fold a row into what its seat holds."""
        _require(0 <= row.seat < self._max_num_seqs, f"no seat {row.seat}")
        seat = self._seats[row.seat]
        if row.options is not None:
            _require(not row.carries, f"{row.request_id} carries a token on admission")
            seat = _Seat(row.request_id, row.options, [], [])
            self._seats[row.seat] = seat
        _require(
            seat is not None and seat.request_id == row.request_id,
            f"{row.request_id} runs at seat {row.seat} of {seat and seat.request_id}",
        )
        assert seat is not None
        seat.block_table += row.new_block_ids
        table = seat.block_table
        _require(_are_distinct(table), f"{row.request_id} holds a block twice")
        _require(
            all(NULL_BLOCK < block_id < self._num_blocks for block_id in table),
            f"{row.request_id} holds a block that cannot be handed out",
        )
        end = row.num_computed_tokens + row.num_tokens
        _require(
            end <= len(table) * self.block_size,
            f"{row.request_id} has no slot for token {end - 1}",
        )

    def _check_writes(self, plan: StepPlan) -> None:
        """Check that each block written now has one owner.

        A row admitted in this step may already refer to what another row writes
        in it; a row that was there before may not.
        """
        writer: dict[int, str] = {}
        for row in plan.rows:
            for block_id in self._written_blocks(row):
                _require(block_id not in writer, f"two rows write block {block_id}")
                writer[block_id] = row.request_id
        for row in plan.rows:
            own = self._seat(row).block_table if row.options is None else ()
            for block_id in own:
                _require(
                    writer.get(block_id, row.request_id) == row.request_id,
                    f"block {block_id} of {row.request_id} is overwritten",
                )

    def _written_blocks(self, row: ScheduledRequest) -> Sequence[int]:
        start = row.num_computed_tokens
        last = start + row.num_tokens - 1
        first_block, last_block = start // self.block_size, last // self.block_size
        return self._seat(row).block_table[first_block : last_block + 1]

    def _write(self, row: ScheduledRequest) -> None:
        seat, start = self._seat(row), row.num_computed_tokens
        if row.options is not None:
            _require(start % self.block_size == 0, "a prefix hit ends inside a block")
            seat.context = self._read_prefix(seat, start)
        _require(
            len(seat.context) == start,
            f"{row.request_id} continues at {start}, not at {len(seat.context)}",
        )
        parent = seat.context[-1].chain if seat.context else 0
        token_ids = self._tokens(row, seat)
        chains = _chains(parent, token_ids)
        for token in map(CachedToken, token_ids, itertools.count(start), chains):
            self.cache[self._slot(seat, token.position)] = token
            seat.context.append(token)

    def _tokens(self, row: ScheduledRequest, seat: _Seat) -> Sequence[int]:
        """Return the ids to run, the one on the device included."""
        if row.carries:
            _require(
                seat.sampled is not None, f"{row.request_id} carries what is not there"
            )
            assert seat.sampled is not None
            return (seat.sampled, *row.token_ids)
        _require(
            seat.sampled in (None, row.token_ids[0]),
            f"{row.request_id} was told {row.token_ids[0]}, not {seat.sampled}",
        )
        return row.token_ids

    def _read_prefix(self, seat: _Seat, length: int) -> list[CachedToken]:
        """Read a prefix hit; every entry must follow from the one before."""
        size = self.block_size
        slots = [
            self.cache[block_id * size + offset]
            for block_id in seat.block_table[: length // size]
            for offset in range(size)
        ]
        found = [token for token in slots if token is not None]
        token_ids = [token.token_id for token in found]
        right = list(
            map(CachedToken, token_ids, itertools.count(), _chains(0, token_ids))
        )
        if slots != right:
            raise PlanError(f"{seat.request_id} hits blocks that do not hold a prefix")
        return found

    def _sample(self, plan: StepPlan) -> StepResult:
        sampled: list[tuple[int, ...]] = []
        logprobs: list[TokenLogprobs | None] = []
        failed: list[int] = []
        for index, row in enumerate(plan.rows):
            seat = self._seat(row)
            self._check_context(seat)
            drawn = self._draw(seat) if row.samples else ()
            if row.samples and not drawn:
                failed.append(index)
            # After a failure the device holds some id, as real logits leave one.
            seat.sampled = (*drawn, self.vocab_size - 1)[0] if row.samples else None
            sampled.append(drawn)
            logprobs.append(_logprobs(seat, drawn))
        asked = tuple(logprobs) if any(logprobs) else None
        return StepResult(plan.step, tuple(sampled), asked, tuple(failed))

    def _check_context(self, seat: _Seat) -> None:
        """Check that the block table still leads to the request's own tokens."""
        size = self.block_size
        for index, block_id in enumerate(seat.block_table):
            own = seat.context[index * size : (index + 1) * size]
            found = self.cache[block_id * size : block_id * size + len(own)]
            if found != own:
                raise PlanError(
                    f"{seat.request_id} finds {found} in block {block_id}, not {own}"
                )

    def _draw(self, seat: _Seat) -> tuple[int, ...]:
        if any(token.token_id in self._poison for token in seat.context):
            return ()
        last = seat.context[-1]
        return (_pick(last.chain, last.position + 1, seat.options, self.vocab_size),)

    def _seat(self, row: ScheduledRequest) -> _Seat:
        seat = self._seats[row.seat]
        assert seat is not None
        return seat

    def _slot(self, seat: _Seat, position: int) -> int:
        block, offset = divmod(position, self.block_size)
        return seat.block_table[block] * self.block_size + offset


def chain_of(token_ids: Sequence[int]) -> int:
    """Return the chain that the last of these tokens has in the cache."""
    return _chains(0, token_ids)[-1] if token_ids else 0


def next_token(
    token_ids: Sequence[int], options: SamplingOptions, *, vocab_size: int
) -> int:
    """Return the token that a `FakeRunner` samples after these.

    Args:
      token_ids: the whole context.
      options: the seed counts at a temperature above 0; `stop_ids` are avoided
        before `stops_from`, and must leave some other id.
      vocab_size: of the runner.
    """
    return _pick(chain_of(token_ids), len(token_ids), options, vocab_size)


def _pick(chain: int, position: int, options: SamplingOptions, vocab_size: int) -> int:
    seed = options.seed if options.temperature > 0 else 0
    token_id = (_chains(chain, [seed])[0] >> 32) % vocab_size
    while position < options.stops_from and token_id in options.stop_ids:
        token_id = (token_id + 1) % vocab_size
    return token_id


def _chains(parent: int, token_ids: Sequence[int]) -> list[int]:
    """Return the chain of each token that follows one with the chain `parent`."""
    chains: list[int] = []
    for token_id in token_ids:
        parent = ((parent ^ (token_id + 1)) * _MULTIPLIER + _INCREMENT) & _WORD
        chains.append(parent)
    return chains


def _logprobs(seat: _Seat, drawn: tuple[int, ...]) -> TokenLogprobs | None:
    if not drawn or seat.options.num_logprobs is None:
        return None
    value = -float(seat.context[-1].chain % 1024)
    return TokenLogprobs(drawn, (value,), (1,), value)


def _are_distinct(values: Sequence[object]) -> bool:
    return len(set(values)) == len(values)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise PlanError(message)
