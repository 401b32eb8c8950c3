"""The state of the KV pool after each step: a fold over the plans of a run. Pure.

A plan names the blocks that a request gets and the requests that lost theirs; which
free blocks keep their content for the prefix cache follows from the tokens. Plans have
no `cache_salt`: blocks of equal prompts with other salts count as equal here.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jengine.core.block_hash import hash_block
from jengine.core.cache_manager import CacheManager
from jengine.core.plan import ScheduledRequest, StepPlan, StepResult
from jengine.recording import RecordedRun

_ROOT = b"first"


class PoolState(NamedTuple):
    """Who holds which blocks at one moment.

    Attributes:
      step: number of the step that has just run; None for an engine as it stands.
      block_size: tokens in a block.
      num_blocks: blocks of the pool, the null block included.
      tables: block ids of each request that holds some, in sequence order.
      computed: tokens of each request that are in its blocks; empty if not known.
      kept: free blocks whose content the prefix cache could still use.
    """

    step: int | None
    block_size: int
    num_blocks: int
    tables: dict[str, tuple[int, ...]]
    computed: dict[str, int]
    kept: frozenset[int]

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """Requests that hold a block, by block."""
        found: dict[int, tuple[str, ...]] = {}
        for name, table in self.tables.items():
            for block_id in table:
                found[block_id] = (*found.get(block_id, ()), name)
        return found

    @property
    def fill(self) -> dict[int, float]:
        """Share of each block in use that holds tokens, from 0 to 1; 1 if unknown."""
        found: dict[int, float] = {}
        for name, table in self.tables.items():
            left = self.computed.get(name, len(table) * self.block_size)
            for block_id in table:
                share = min(1.0, max(0, left) / self.block_size)
                found[block_id] = max(share, found.get(block_id, 0.0))
                left -= self.block_size
        return found


def state_of(cache: CacheManager) -> PoolState:
    """Return how a pool stands now."""
    pool = cache.pool
    return PoolState(
        step=None,
        block_size=cache.block_size,
        num_blocks=pool.num_blocks,
        tables=cache.tables,
        computed={},
        kept=frozenset(
            block_id
            for block_id in range(1, pool.num_blocks)
            if pool.is_cached(block_id) and not pool.num_references(block_id)
        ),
    )


def pool_states(run: RecordedRun) -> Iterator[PoolState]:
    """Go through the states of the pool after each step of a run."""
    fold = _Fold(run)
    results = {result.step: result for result in run.results}
    for plan in run.plans:
        yield fold.apply(plan)
        if plan.step in results:
            fold.learn(plan, results[plan.step])


class _Fold:
    """Block tables, tokens, and the prefix index, as plans change them."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._tables: dict[str, list[int]] = {}
        self._computed: dict[str, int] = {}
        self._tokens: dict[str, list[int]] = {}
        self._tokens_in: dict[int, list[int]] = {}
        self._index: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def apply(self, plan: StepPlan) -> PoolState:
        """Take in a plan and return the state once it has run."""
        for name in (*plan.finished_ids, *plan.preempted_ids):
            self._release(name)
        for row in plan.rows:
            self._hand_out(row)
        # A row that hits a block of this very step starts after the one that fills it.
        for row in sorted(plan.rows, key=lambda row: row.num_computed_tokens):
            self._compute(row)
        held = {block_id for table in self._tables.values() for block_id in table}
        return PoolState(
            step=plan.step,
            block_size=self._run.block_size,
            num_blocks=self._run.num_blocks,
            tables={name: tuple(table) for name, table in self._tables.items()},
            computed=dict(self._computed),
            kept=frozenset(self._hash_of.keys() - held),
        )

    def learn(self, plan: StepPlan, result: StepResult) -> None:
        """Take in what a step sampled."""
        for row, ids in zip(plan.rows, result.sampled, strict=True):
            end = row.num_computed_tokens + row.num_tokens
            self._note_tokens(row.request_id, end, ids)

    def _hand_out(self, row: ScheduledRequest) -> None:
        name, added = row.request_id, row.new_block_ids
        num_hit = 0
        if row.options is not None:
            self._release(name)  # if a run broke off, no plan said so
            num_hit = row.num_computed_tokens // self._run.block_size
            self._tables[name] = []
        for block_id in added[num_hit:]:
            self._index.pop(self._hash_of.pop(block_id, b""), None)
        # Rows whose admission came before the recording have no table yet.
        self._tables.setdefault(name, []).extend(added)

    def _compute(self, row: ScheduledRequest) -> None:
        start = row.num_computed_tokens
        if row.options is not None:
            hits = row.new_block_ids[: start // self._run.block_size]
            found = [self._tokens_in.get(block_id, []) for block_id in hits]
            self._tokens[row.request_id] = [token for ids in found for token in ids]
        self._note_tokens(row.request_id, start + row.carries, row.token_ids)
        self._computed[row.request_id] = start + row.num_tokens
        if row.new_block_ids:  # the cache manager does it when it hands out blocks, too
            self._register(row.request_id)

    def _note_tokens(self, name: str, start: int, ids: Iterable[int]) -> None:
        known = self._tokens.setdefault(name, [])
        if start <= len(known):
            known[start:] = [*ids, *known[start + len(tuple(ids)) :]]

    def _release(self, name: str) -> None:
        if name in self._tables:
            self._register(name)
            del self._tables[name], self._computed[name]
            self._tokens.pop(name, None)

    def _register(self, name: str) -> None:
        """Enter a request's full blocks whose tokens are known into the index."""
        size, known = self._run.block_size, self._tokens[name]
        if not self._run.prefix_caching:
            return
        parent = _ROOT
        full = min(self._computed.get(name, 0), len(known)) // size
        for index, block_id in enumerate(self._tables[name][:full]):
            tokens = known[index * size : (index + 1) * size]
            parent = hash_block(parent, tokens)
            if parent not in self._index and block_id not in self._hash_of:
                self._index[parent] = block_id
                self._hash_of[block_id] = parent
                self._tokens_in[block_id] = tokens
