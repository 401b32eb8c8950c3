import copy
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jengine.core.block_pool import NULL_BLOCK, BlockPool


def test_f2_a_new_pool_hands_out_all_but_the_null_block(free_list):
    pool = BlockPool(5)
    assert (pool.num_usable, pool.num_free, pool.num_in_use) == (4, 4, 0)
    assert free_list(pool) == [1, 2, 3, 4]


@pytest.mark.parametrize("num_blocks", [-1, 0, 1])
def test_mem_01_a_pool_without_usable_blocks_is_refused(num_blocks):
    with pytest.raises(ValueError, match="at least 2"):
        BlockPool(num_blocks)


def test_c2_12_the_null_block_is_never_handed_out():
    pool = BlockPool(4)
    assert NULL_BLOCK not in pool.take(3)
    with pytest.raises(ValueError, match="1 blocks asked for, 0 are free"):
        pool.take(1)


def test_c2_2_a_failed_take_leaves_no_trace():
    pool = BlockPool(4)
    pool.register(pool.take(1)[0], b"a")
    before = copy.deepcopy(vars(pool))
    with pytest.raises(ValueError, match="3 blocks asked for, 2 are free"):
        pool.take(3)
    assert vars(pool) == before


def test_c2_5_the_tail_of_a_sequence_is_forgotten_before_its_head(free_list):
    pool = BlockPool(6)
    table = pool.take(3)
    for block_id, block_hash in zip(table, [b"a", b"b", b"c"], strict=True):
        pool.register(block_id, block_hash)
    pool.release(table)
    assert free_list(pool) == [4, 5, 3, 2, 1]
    assert pool.take(3) == [4, 5, 3]
    assert [pool.find(h) for h in (b"a", b"b", b"c")] == [1, 2, None]


def test_c2_5_blocks_without_a_hash_are_handed_out_first(free_list):
    pool = BlockPool(6)
    table = pool.take(3)
    pool.register(table[0], b"a")
    pool.release(table)
    assert free_list(pool) == [2, 3, 4, 5, 1]


def test_c2_3_a_free_block_is_found_until_it_is_handed_out():
    pool = BlockPool(3)
    pool.register(*pool.take(1), b"a")
    pool.release([1])
    assert pool.find(b"a") == 1
    pool.take(2)
    assert pool.find(b"a") is None
    assert pool.num_cached == 0


def test_c2_4_the_second_block_of_one_content_stays_out_of_the_index():
    pool = BlockPool(4)
    first, second = pool.take(2)
    pool.register(first, b"a")
    pool.register(second, b"a")
    assert pool.find(b"a") == first
    pool.release([second])
    assert pool.take(1) == [second]  # it held nothing worth keeping
    assert pool.find(b"a") == first


def test_a_block_keeps_its_first_hash():
    pool = BlockPool(3)
    pool.take(1)
    pool.register(1, b"a")
    pool.register(1, b"b")
    assert (pool.find(b"a"), pool.find(b"b")) == (1, None)


def test_touching_takes_a_block_out_of_the_middle(free_list):
    pool = BlockPool(5)
    pool.touch([2])
    assert free_list(pool) == [1, 3, 4]
    pool.touch([2])
    assert pool.num_referenced([1, 2, 3]) == 1
    pool.release([2])
    assert free_list(pool) == [1, 3, 4]
    pool.release([2])
    assert free_list(pool) == [2, 1, 3, 4]


def test_c2_13_forgetting_all_is_refused_while_a_block_is_in_use():
    pool = BlockPool(3)
    pool.take(1)
    pool.register(1, b"a")
    assert not pool.forget_all()
    assert pool.find(b"a") == 1
    pool.release([1])
    assert pool.forget_all()
    assert (pool.find(b"a"), pool.num_cached) == (None, 0)


@pytest.mark.parametrize(
    ("attribute", "index", "value"),
    [("_refs", 1, 0), ("_refs", 3, 1), ("num_free", None, 9)],
)
def test_the_invariants_can_fail(attribute, index, value):
    pool = BlockPool(5)
    table = pool.take(1)
    pool.check_invariants([table])
    if index is None:
        setattr(pool, attribute, value)
    else:
        getattr(pool, attribute)[index] = value
    with pytest.raises(AssertionError):
        pool.check_invariants([table])


class PoolMachine(RuleBasedStateMachine):
    """The pool beside a model of it: a list of free blocks, and a dict."""

    check: Callable[..., None]
    free_list: Callable[..., list[int]]

    @initialize(num_blocks=st.integers(2, 12))
    def start(self, num_blocks):
        self.pool = BlockPool(num_blocks)
        self.free = list(range(1, num_blocks))
        self.index = {}
        self.tables = []

    @rule(count=st.integers(0, 5))
    def take(self, count):
        if count > len(self.free):
            with pytest.raises(ValueError, match="are free"):
                self.pool.take(count)
            return
        taken, self.free = self.free[:count], self.free[count:]
        assert self.pool.take(count) == taken
        self.index = {h: b for h, b in self.index.items() if b not in taken}
        self.tables.append(taken)

    @precondition(lambda self: any(self.tables))
    @rule(data=st.data(), block_hash=st.binary(min_size=1, max_size=1))
    def register(self, data, block_hash):
        block_id = data.draw(st.sampled_from([b for t in self.tables for b in t]))
        self.pool.register(block_id, block_hash)
        if block_id not in self.index.values():
            self.index.setdefault(block_hash, block_id)

    @precondition(lambda self: self.index)
    @rule(data=st.data())
    def hit(self, data):
        hits = data.draw(st.lists(st.sampled_from(sorted(self.index)), unique=True))
        table = [self.pool.find(block_hash) for block_hash in hits]
        assert table == [self.index[block_hash] for block_hash in hits]
        self.pool.touch(table)
        self.free = [b for b in self.free if b not in table]
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data):
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(table)
        for block_id in reversed(table):
            if any(block_id in other for other in self.tables):
                continue
            if block_id in self.index.values():
                self.free.append(block_id)
            else:
                self.free.insert(0, block_id)

    @rule()
    def forget_all(self):
        idle = not any(self.tables)
        assert self.pool.forget_all() == idle
        if idle:
            self.index = {}

    @invariant()
    def compare(self):
        self.pool.check_invariants(self.tables)
        self.check(self.pool, self.tables)
        assert self.free_list(self.pool) == self.free
        assert self.pool._block_of == self.index


def test_pool_machine(check_pool, free_list, without_type_checks):
    machine = type(
        "Machine",
        (PoolMachine,),
        {"check": staticmethod(check_pool), "free_list": staticmethod(free_list)},
    )
    run_state_machine_as_test(
        machine, settings=settings(max_examples=100, stateful_step_count=40)
    )


def test_a_pool_tells_who_refers_to_a_block_and_whether_it_is_kept():
    pool = BlockPool(4)
    block_id, other = pool.take(2)
    pool.register(block_id, b"a")
    pool.touch([block_id])
    assert [pool.num_references(b) for b in (block_id, other, 3)] == [2, 1, 0]
    assert [pool.is_cached(b) for b in (block_id, other, 3)] == [True, False, False]
    pool.release([block_id])
    pool.release([block_id])
    assert (pool.num_references(block_id), pool.is_cached(block_id)) == (0, True)
