"""Chained hashes of full blocks: the keys of the prefix cache.

A block's hash covers its own tokens and, through its parent's hash, everything
before it, so equal hashes mean equal prefixes. Python's own `hash` is not used:
it is salted per process and easy to collide on purpose.
"""

import hashlib
from array import array
from collections.abc import Sequence

BlockHash = bytes

_ROOT = b"jengine"


def extend_block_hashes(
    hashes: list[BlockHash],
    token_ids: Sequence[int],
    block_size: int,
    *,
    salt: str | None = None,
) -> None:
    """Append the hashes of the full blocks that `hashes` does not cover yet.

    Args:
      hashes: hashes of the leading full blocks, extended in place.
      token_ids: all tokens known so far.
      block_size: tokens in a block.
      salt: keeps requests apart that must not share blocks; it enters the first
        block's hash and, by chaining, all others.
    """
    # Any string is a salt, even one that is no proper text.
    root = _ROOT + (salt or "").encode(errors="surrogatepass")
    parent = hashes[-1] if hashes else root
    for start in range(
        len(hashes) * block_size, len(token_ids) - block_size + 1, block_size
    ):
        parent = hash_block(parent, token_ids[start : start + block_size])
        hashes.append(parent)


def hash_block(parent: bytes, token_ids: Sequence[int]) -> BlockHash:
    """Hash one full block under its parent's hash."""
    return hashlib.sha256(parent + array("q", token_ids).tobytes()).digest()
