"""The block tables of all running requests, and their prefix hits.

Allocation is all or nothing: count first, then touch the hit blocks, then take
new ones, so that a failure leaves no trace and a block just hit is never handed
out.
"""

import itertools
from collections.abc import Sequence

from jengine.appearance import as_html, as_text, print_pretty
from jengine.core.block_hash import extend_block_hashes
from jengine.core.block_pool import BlockPool
from jengine.core.request import Request


class CacheManager:
    """Owns one append-only block table for each running request."""

    def __init__(
        self, *, num_blocks: int, block_size: int, enable_prefix_caching: bool
    ) -> None:
        """Make a manager over a new pool.

        Args:
          num_blocks: blocks in the pool, the null block included.
          block_size: tokens in a block.
          enable_prefix_caching: whether full blocks are found again by content.
        """
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.pool = BlockPool(num_blocks)
        self._tables: dict[str, list[int]] = {}
        self._num_registered: dict[str, int] = {}

    @property
    def tables(self) -> dict[str, tuple[int, ...]]:
        """A copy of all block tables, by request."""
        return {name: tuple(table) for name, table in self._tables.items()}

    def table(self, request_id: str) -> Sequence[int]:
        """Block ids of a request in sequence order; empty if it has none."""
        return self._tables.get(request_id, ())

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_size)

    def find_prefix(self, request: Request) -> list[int]:
        """Blocks that already hold the start of the request's tokens.

        At least one token is always left to compute, because a step that runs
        none would have nothing to sample from.
        """
        if not self.enable_prefix_caching:
            return []
        self._extend_hashes(request)
        if not request.reads_cache:
            return []
        hit: list[int] = []
        most = (len(request.token_ids) - 1) // self.block_size
        for block_hash in itertools.islice(request.block_hashes, most):
            block_id = self.pool.find(block_hash)
            if block_id is None:
                break
            hit.append(block_id)
        return hit

    def fits(self, num_tokens: int, prefix: Sequence[int]) -> bool:
        """Whether a sequence of this length could be held now, given its hits."""
        new = self.num_blocks_for(num_tokens) - len(prefix)
        unreferenced = len(prefix) - self.pool.num_referenced(prefix)
        return new + unreferenced <= self.pool.num_free

    def admit(
        self, request: Request, prefix: Sequence[int], num_tokens: int
    ) -> tuple[int, ...]:
        """Start a table with a prefix hit and room for `num_tokens` in all.

        The caller has seen `fits` hold for at least as many tokens.

        Returns:
          The whole table.
        """
        self.pool.touch(prefix)
        count = self.num_blocks_for(num_tokens) - len(prefix)
        table = [*prefix, *self.pool.take(count)]
        self._tables[request.request_id] = table
        self._num_registered[request.request_id] = len(prefix)
        request.num_slots = len(table) * self.block_size
        self._register(request, num_tokens)
        return tuple(table)

    def extend(self, request: Request, num_tokens: int) -> tuple[int, ...] | None:
        """Grow a table until it has room for `num_tokens` in all.

        Returns:
          The block ids added, or None (and no change) when too few are free.
        """
        table = self._tables[request.request_id]
        count = self.num_blocks_for(num_tokens) - len(table)
        if count > self.pool.num_free:
            return None
        added = self.pool.take(count)
        table += added
        request.num_slots = len(table) * self.block_size
        self._register(request, num_tokens)
        return tuple(added)

    def release(self, request: Request) -> None:
        """Give a request's blocks back; nothing happens if it has none.

        Its computed full blocks stay in the prefix index until handed out again.
        """
        table = self._tables.get(request.request_id)
        if table is None:
            return
        self._register(request, request.num_computed_tokens)
        self.pool.release(table)
        del self._tables[request.request_id], self._num_registered[request.request_id]
        request.num_slots = 0

    def empty_copy(self) -> "CacheManager":
        """Return a manager of the same sizes, on a new pool."""
        return CacheManager(
            num_blocks=self.pool.num_blocks,
            block_size=self.block_size,
            enable_prefix_caching=self.enable_prefix_caching,
        )

    def check_invariants(self) -> None:
        """Assert the pool's invariants against the tables that exist."""
        self.pool.check_invariants(self._tables.values())
        assert self._tables.keys() == self._num_registered.keys()

    __str__, _repr_html_, _repr_pretty_ = as_text, as_html, print_pretty

    def _register(self, request: Request, num_computed: int) -> None:
        """Enter the full blocks that this step or earlier ones compute.

        Tokens that are still on the device are not known, hence not hashed.
        """
        if not self.enable_prefix_caching:
            return
        full = min(num_computed, len(request.token_ids)) // self.block_size
        start = self._num_registered[request.request_id]
        if full <= start:
            return
        self._extend_hashes(request)
        table = self._tables[request.request_id]
        for index in range(start, full):
            self.pool.register(table[index], request.block_hashes[index])
        self._num_registered[request.request_id] = full

    def _extend_hashes(self, request: Request) -> None:
        extend_block_hashes(
            request.block_hashes,
            request.token_ids,
            self.block_size,
            salt=request.cache_salt,
        )
