"""The KV pool in characters, which every terminal and every notebook viewer shows."""

from collections.abc import Iterator

from jengine.core.block_pool import NULL_BLOCK, BlockPool
from jengine.core.cache_manager import CacheManager

_WIDTH = 64
_MOST_LINES = 16
_MOST_TABLES = 16
_LEGEND = "null 0   free .   free, content kept o   held by that many requests 1-9 (+)"


def describe_pool(cache: CacheManager) -> str:
    """Return one line with the sizes of a pool and what is in use."""
    pool = cache.pool
    kept = sum(1 for _ in _kept_blocks(pool))
    return (
        f"KV pool: {pool.num_usable:,} blocks of {cache.block_size} tokens; "
        f"{pool.num_in_use:,} in use, {pool.num_free:,} free ({kept:,} keep their "
        "content for the prefix cache)"
    )


def pool_notes(pool: BlockPool) -> list[str]:
    """Return a map of the blocks up to the last one that holds anything."""
    used = [b for b in range(1, pool.num_blocks) if block_mark(pool, b) != "."]
    last = max(used, default=0)
    lines = []
    for start in range(0, last + 1, _WIDTH):
        ids = range(start, min(start + _WIDTH, last + 1))
        lines.append(f"{start:5} {''.join(block_mark(pool, b) for b in ids)}")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"... up to block {last}"]
    if last + 1 < pool.num_blocks:
        lines.append(f"blocks {last + 1} to {pool.num_blocks - 1} are free and empty")
    return [*lines, _LEGEND]


def table_rows(cache: CacheManager) -> list[tuple[str, int, str]]:
    """Return a row for each request that holds blocks: id, count, ids of blocks."""
    listed = list(cache.tables.items())
    rows = [(name, len(ids), _ranges(ids)) for name, ids in listed[:_MOST_TABLES]]
    if len(listed) > _MOST_TABLES:
        rest = listed[_MOST_TABLES:]
        rows.append((f"{len(rest)} more", sum(len(ids) for _, ids in rest), "..."))
    return rows


def block_mark(pool: BlockPool, block_id: int) -> str:
    """Return the character that stands for a block."""
    if block_id == NULL_BLOCK:
        return "0"
    references = pool.num_references(block_id)
    if references:
        return str(references) if references < 10 else "+"
    return "o" if pool.is_cached(block_id) else "."


def _kept_blocks(pool: BlockPool) -> Iterator[int]:
    for block_id in range(1, pool.num_blocks):
        if pool.is_cached(block_id) and not pool.num_references(block_id):
            yield block_id


def _ranges(block_ids: tuple[int, ...]) -> str:
    """Write ids in their order, neighbours as ranges: 3-5 9."""
    runs: list[list[int]] = []
    for block_id in block_ids:
        if runs and block_id == runs[-1][1] + 1:
            runs[-1][1] = block_id
        else:
            runs.append([block_id, block_id])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
