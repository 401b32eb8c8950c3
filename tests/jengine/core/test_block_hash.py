import hashlib
import itertools
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from jengine.core.block_hash import extend_block_hashes, hash_block

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def hashes_of(tokens, size, salt=None):
    hashes = []
    extend_block_hashes(hashes, tokens, size, salt=salt)
    return hashes


def test_only_full_blocks_are_hashed():
    lengths = [len(hashes_of(range(n), 4)) for n in (0, 3, 4, 7, 8)]
    assert lengths == [0, 0, 1, 1, 2]


def test_a_block_is_hashed_over_its_parent_and_eight_bytes_a_token():
    tokens = b"".join(t.to_bytes(8, "little") for t in (1, 2**31 - 1))
    assert hash_block(b"parent", [1, 2**31 - 1]) == (
        hashlib.sha256(b"parent" + tokens).digest()
    )


@given(TOKENS, st.integers(1, 7), st.data())
def test_extending_bit_by_bit_gives_the_same(tokens, size, data):
    hashes = []
    for end in sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=4))):
        extend_block_hashes(hashes, tokens[:end], size)
    extend_block_hashes(hashes, tokens, size)
    assert hashes == hashes_of(tokens, size)


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_hashes_are_equal_as_far_as_prefixes_are(first, second, size):
    pairs = zip(hashes_of(first, size), hashes_of(second, size), strict=False)
    for index, (one, other) in enumerate(pairs):
        end = (index + 1) * size
        assert (one == other) == (first[:end] == second[:end])


def test_cor_02_same_block_under_another_parent_differs():
    one, other = hashes_of([1, 2, 7, 8], 2), hashes_of([1, 3, 7, 8], 2)
    assert one[1] != other[1]


def test_c2_10_a_salt_changes_every_block():
    variants = [hashes_of(range(8), 4, salt) for salt in (None, "a", "b")]
    for one, other in itertools.combinations(variants, 2):
        assert not set(one) & set(other)


def test_c2_11_hashes_are_the_same_in_every_process():
    code = (
        "from jengine.core.block_hash import hash_block;"
        "print(hash_block(b'x', [1, 2]).hex())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == hash_block(b"x", [1, 2]).hex()


def test_any_string_is_a_salt():
    salts = ["a", "\ud800", "\udfff", "a\ud800", "\U0001f600"]
    assert len({hashes_of([1, 2], 2, salt)[0] for salt in salts}) == len(salts)
