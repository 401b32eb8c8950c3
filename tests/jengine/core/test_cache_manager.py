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

from jengine.core.cache_manager import CacheManager
from jengine.core.request import FinishReason, Request


def make(num_blocks=8, block_size=4, caching=True):
    return CacheManager(
        num_blocks=num_blocks, block_size=block_size, enable_prefix_caching=caching
    )


def request_of(name, ids, salt=None):
    return Request(name, ids, max_total_tokens=len(ids) + 50, cache_salt=salt)


def state(manager):
    return copy.deepcopy([vars(manager.pool), manager._tables, manager._num_registered])


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_blocks_for_tokens(tokens, blocks):
    assert make(block_size=16).num_blocks_for(tokens) == blocks


def test_a_table_grows_and_is_given_back():
    manager, request = make(), request_of("a", list(range(9)))
    assert manager.table("a") == ()
    assert manager.admit(request, [], 5) == (1, 2)
    assert request.num_slots == 8
    assert manager.extend(request, 9) == (3,)
    assert manager.extend(request, 12) == ()
    assert list(manager.table("a")) == [1, 2, 3]
    request.num_computed_tokens = 9
    manager.release(request)
    manager.release(request)
    assert (manager.table("a"), request.num_slots) == ((), 0)
    assert manager.pool.num_in_use == 0
    manager.check_invariants()


def test_c2_2_a_failed_extension_leaves_no_trace():
    manager, request = make(num_blocks=3), request_of("a", list(range(20)))
    manager.admit(request, [], 8)
    before = state(manager)
    assert manager.extend(request, 9) is None
    assert state(manager) == before


def test_c2_2_free_hit_blocks_are_counted_as_needed():
    manager, first = make(num_blocks=5), request_of("a", list(range(8)))
    manager.admit(first, [], 8)
    first.num_computed_tokens = 8
    manager.release(first)
    second = request_of("b", [*range(8), 9])
    prefix = manager.find_prefix(second)
    assert prefix == [1, 2]
    assert manager.fits(16, prefix)
    assert not manager.fits(17, prefix)
    manager.admit(request_of("c", [50]), [], 4)
    assert manager.fits(12, prefix)
    assert not manager.fits(13, prefix)


def test_c2_2_hit_blocks_are_touched_before_new_ones_are_taken():
    manager, first = make(num_blocks=4), request_of("a", list(range(12)))
    manager.admit(first, [], 12)
    first.num_computed_tokens = 12
    manager.release(first)  # free: 3, 2, 1
    second = request_of("b", [*range(12), 1])
    second.token_ids[4] = 99  # so that only block 1 is hit
    prefix = manager.find_prefix(second)
    assert manager.admit(second, prefix, 12) == (1, 3, 2)
    manager.check_invariants()


def test_finding_a_prefix_changes_nothing_in_the_pool():
    manager, request = make(), request_of("a", list(range(9)))
    manager.admit(request, [], 9)
    before = state(manager)
    assert manager.find_prefix(request_of("b", list(range(9)))) == [1, 2]
    assert state(manager) == before


def test_only_computed_blocks_are_registered():
    manager, request = make(), request_of("a", list(range(12)))
    manager.admit(request, [], 6)
    assert manager.pool.num_cached == 1
    manager.extend(request, 9)
    assert manager.pool.num_cached == 2
    request.num_computed_tokens = 11
    manager.release(request)
    assert manager.pool.num_cached == 2


def test_c2_6_a_token_in_flight_is_not_hashed():
    manager, request = make(), request_of("a", list(range(7)))
    manager.admit(request, [], 7)
    manager.extend(request, 8)  # its last token is not known yet
    manager.extend(request, 9)
    assert manager.pool.num_cached == 1
    request.token_ids.append(7)
    request.num_computed_tokens = 9
    manager.release(request)
    assert manager.pool.num_cached == 2


def test_without_caching_nothing_is_found_or_registered():
    manager, request = make(caching=False), request_of("a", list(range(8)))
    manager.admit(request, [], 8)
    assert manager.find_prefix(request_of("b", list(range(9)))) == []
    assert (manager.pool.num_cached, request.block_hashes) == (0, [])


def test_an_empty_copy_has_the_same_sizes_and_no_past():
    manager = make(num_blocks=5, block_size=2, caching=False)
    manager.admit(request_of("a", [1, 2, 3]), [], 3)
    other = manager.empty_copy()
    assert (other.block_size, other.enable_prefix_caching) == (2, False)
    assert (other.pool.num_blocks, other.pool.num_in_use) == (5, 0)
    assert other.table("a") == ()


class CacheMachine(RuleBasedStateMachine):
    """The manager beside a dict from (salt, tokens so far) to the block."""

    check: Callable[..., None]

    @initialize(usable=st.integers(1, 8), block_size=st.integers(1, 3))
    def start(self, usable, block_size):
        self.manager = make(usable + 1, block_size)
        self.size = block_size
        self.live, self.index, self.tried, self.number = [], {}, {}, 0

    @rule(
        ids=st.lists(st.integers(0, 1), min_size=1, max_size=10),
        salt=st.sampled_from([None, "s"]),
        data=st.data(),
    )
    def admit(self, ids, salt, data):
        request = request_of(f"r{self.number}", ids, salt)
        self.number += 1
        prefix = self.manager.find_prefix(request)
        assert prefix == self.expected_prefix(request)
        count = data.draw(st.integers(len(prefix) * self.size + 1, len(ids)))
        free = self.manager.pool.num_free
        in_use = {b for r in self.live for b in self.manager.table(r.request_id)}
        needed = -(-len(ids) // self.size) - len(in_use.intersection(prefix))
        assert self.manager.fits(len(ids), prefix) == (needed <= free)
        if needed <= free:
            table = self.manager.admit(request, prefix, count)
            assert list(table[: len(prefix)]) == prefix
            assert len(table) == -(-count // self.size)
            self.live.append(request)
            self.tried[request] = len(prefix)
            request.num_computed_tokens = count
            self.took(table[len(prefix) :])
            self.registers(request)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), token=st.integers(0, 1))
    def run(self, data, token):
        request = data.draw(st.sampled_from(self.live))
        if request.num_computed_tokens == len(request.token_ids):
            request.token_ids.append(token)
        end = data.draw(
            st.integers(request.num_computed_tokens + 1, len(request.token_ids))
        )
        if end > request.num_slots:
            before = state(self.manager)
            added = self.manager.extend(request, end)
            if added is None:
                assert state(self.manager) == before
                return
            request.num_computed_tokens = end
            self.took(added)
            self.registers(request)
        request.num_computed_tokens = end

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data):
        request = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.registers(request)
        self.manager.release(request)
        assert self.manager.table(request.request_id) == ()

    def took(self, block_ids):
        self.index = {k: b for k, b in self.index.items() if b not in block_ids}

    def keys(self, request, end):
        for stop in range(self.size, end + 1, self.size):
            yield (request.cache_salt, tuple(request.token_ids[:stop]))

    def registers(self, request):
        table = self.manager.table(request.request_id)
        keys = self.keys(request, request.num_computed_tokens)
        pairs = list(zip(keys, table, strict=False))
        # Each block has one chance: a duplicate stays out even if its twin goes.
        for key, block_id in pairs[self.tried.get(request, 0) :]:
            self.tried[request] = self.tried.get(request, 0) + 1
            if block_id not in self.index.values():
                self.index.setdefault(key, block_id)

    def expected_prefix(self, request):
        found = []
        for key in self.keys(request, len(request.token_ids) - 1):
            if key not in self.index:
                break
            found.append(self.index[key])
        return found

    @invariant()
    def holds(self):
        if not hasattr(self, "manager"):
            return
        tables = [self.manager.table(r.request_id) for r in self.live]
        self.manager.check_invariants()
        self.check(self.manager.pool, tables)
        assert sorted(self.manager.pool._hash_of) == sorted(self.index.values())


@pytest.mark.usefixtures("without_type_checks")
def test_cache_machine(check_pool):
    run_state_machine_as_test(
        type("Machine", (CacheMachine,), {"check": staticmethod(check_pool)}),
        settings=settings(max_examples=60, stateful_step_count=30),
    )


def test_an_ended_request_is_released_like_any_other():
    manager, request = make(), request_of("a", [1])
    manager.admit(request, [], 1)
    request.num_computed_tokens = 1
    manager.release(request)
    request.finish(FinishReason.STOP, None)
    manager.check_invariants()


def test_tables_are_a_copy():
    cache = CacheManager(num_blocks=9, block_size=4, enable_prefix_caching=True)
    cache.admit(Request("a", [1, 2, 3, 4, 5], max_total_tokens=9), [], 5)
    tables = cache.tables
    assert tables == {"a": (1, 2)}
    tables.clear()
    assert list(cache.table("a")) == [1, 2]
