"""Every KV block: free list, reference counts and the prefix index.

The pool knows block ids only. A block is in exactly one place: it is the null
block, or free, or referenced by at least one block table. A free block may still
be in the prefix index: it is forgotten when it is handed out, not before.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from jengine.core.block_hash import BlockHash

NULL_BLOCK = 0


class BlockPool:
    """A fixed set of blocks; all operations cost O(blocks named), none O(pool).

    The free list is doubly linked through two lists of ints, so that a prefix
    hit can take a block out of its middle. Handing out starts at its head.
    Freed blocks that hold a hash go to the tail, to be forgotten last; the others
    go to the head, because nothing is lost by overwriting them.
    """

    def __init__(self, num_blocks: int) -> None:
        """Make a pool of `num_blocks`, the null block included.

        Raises:
          ValueError: fewer than two blocks, so none could be handed out.
        """
        if num_blocks < 2:
            raise ValueError(
                f"num_blocks is {num_blocks}; at least 2 are needed, because "
                "block 0 is kept for padding"
            )
        self.num_blocks = num_blocks
        self.num_free = num_blocks - 1
        # Links run through 1..num_blocks-1; entry `num_blocks` is both ends.
        self._end = num_blocks
        self._next = [0, *range(2, num_blocks + 1), 1]
        self._prev = [0, num_blocks, *range(1, num_blocks)]
        self._refs = [0] * num_blocks
        self._hash_of: dict[int, BlockHash] = {}
        self._block_of: dict[BlockHash, int] = {}

    @property
    def num_usable(self) -> int:
        """Blocks that can ever be handed out."""
        return self.num_blocks - 1

    @property
    def num_in_use(self) -> int:
        """Blocks that some block table refers to."""
        return self.num_usable - self.num_free

    @property
    def num_cached(self) -> int:
        """Blocks in the prefix index."""
        return len(self._block_of)

    def find(self, block_hash: BlockHash) -> int | None:
        """Return the block that holds this content, if any."""
        return self._block_of.get(block_hash)

    def num_references(self, block_id: int) -> int:
        """Return how many block tables refer to a block."""
        return self._refs[block_id]

    def is_cached(self, block_id: int) -> bool:
        """Whether a block is in the prefix index."""
        return block_id in self._hash_of

    def num_referenced(self, block_ids: Iterable[int]) -> int:
        """Count those of the blocks that are not in the free list."""
        return sum(1 for block_id in block_ids if self._refs[block_id])

    def take(self, count: int) -> list[int]:
        """Hand out blocks from the head of the free list, forgetting their content.

        Raises:
          ValueError: fewer than `count` blocks are free; nothing is changed.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks asked for, {self.num_free} are free")
        taken: list[int] = []
        block_id = self._next[self._end]
        for _ in range(count):
            taken.append(block_id)
            self._refs[block_id] = 1
            self._forget(block_id)
            block_id = self._next[block_id]
        self._next[self._end] = block_id
        self._prev[block_id] = self._end
        self.num_free -= count
        return taken

    def touch(self, block_ids: Iterable[int]) -> None:
        """Add a reference to each block, taking free ones out of the free list."""
        for block_id in block_ids:
            if self._refs[block_id] == 0:
                self._unlink(block_id)
            self._refs[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> None:
        """Drop a table's references, its last block first.

        The reverse order lets a sequence's tail be forgotten before its head.
        """
        for block_id in reversed(block_ids):
            self._refs[block_id] -= 1
            if self._refs[block_id] == 0:
                self._link(block_id)

    def register(self, block_id: int, block_hash: BlockHash) -> None:
        """Enter a full block into the prefix index.

        A second block with the same content stays out of the index: tables are
        append-only, so its owner keeps it until it is freed.
        """
        if block_hash not in self._block_of and block_id not in self._hash_of:
            self._block_of[block_hash] = block_id
            self._hash_of[block_id] = block_hash

    def forget_all(self) -> bool:
        """Empty the prefix index; refused (False) while any block is in use."""
        if self.num_in_use:
            return False
        self._hash_of.clear()
        self._block_of.clear()
        return True

    def check_invariants(self, tables: Iterable[Sequence[int]]) -> None:
        """Assert that every block is in one place and referenced as often as held.

        Args:
          tables: all block tables that exist.
        """
        held = Counter(block_id for table in tables for block_id in table)
        free = self._free_blocks()
        assert NULL_BLOCK not in held
        assert NULL_BLOCK not in free
        assert len(free) == len(set(free)) == self.num_free
        assert not held.keys() & set(free)
        assert len(held) + len(free) == self.num_usable
        for block_id in range(1, self.num_blocks):
            assert self._refs[block_id] == held[block_id]
        assert {b: h for h, b in self._block_of.items()} == self._hash_of

    def _free_blocks(self) -> list[int]:
        found: list[int] = []
        block_id = self._next[self._end]
        while block_id != self._end:
            found.append(block_id)
            assert len(found) < self.num_blocks  # or the list runs in a circle
            assert self._next[self._prev[block_id]] == block_id
            block_id = self._next[block_id]
        return found

    def _forget(self, block_id: int) -> None:
        block_hash = self._hash_of.pop(block_id, None)
        if block_hash is not None:
            del self._block_of[block_hash]

    def _unlink(self, block_id: int) -> None:
        before, after = self._prev[block_id], self._next[block_id]
        self._next[before] = after
        self._prev[after] = before
        self.num_free -= 1

    def _link(self, block_id: int) -> None:
        if block_id in self._hash_of:
            before, after = self._prev[self._end], self._end
        else:
            before, after = self._end, self._next[self._end]
        self._next[before] = self._prev[after] = block_id
        self._prev[block_id], self._next[block_id] = before, after
        self.num_free += 1
