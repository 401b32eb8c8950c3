"""Oracles of the host side: brute-force checks, and each request run alone."""

import hashlib
from array import array
from collections import Counter

import jaxtyping
import pytest

from jengine.core.request import RequestStatus
from jengine.testing.fake_runner import chain_of, next_token


def pytest_addoption(parser):
    parser.addoption(
        "--schedules",
        type=int,
        default=1000,
        help="random schedules to run: pytest tests/jengine/core --schedules 100000",
    )


@pytest.fixture(scope="session")
def num_schedules(pytestconfig):
    # Without this folder on the command line the option comes too late.
    return pytestconfig.getoption("--schedules", default=1000)


@pytest.fixture
def without_type_checks():
    """For long random runs: a check costs 30 us a call, and examples make them all."""
    was = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", was)


@pytest.fixture(scope="session")
def check_pool():
    return _check_pool


@pytest.fixture(scope="session")
def check_scheduler():
    return _check_scheduler


@pytest.fixture(scope="session")
def check_index():
    return _check_index


@pytest.fixture(scope="session")
def alone():
    return _alone


@pytest.fixture(scope="session")
def free_list():
    return _free_list


def _free_list(pool):
    found = []
    block_id = pool._next[pool._end]
    while block_id != pool._end:
        found.append(block_id)
        assert len(found) < pool.num_blocks
        block_id = pool._next[block_id]
    backwards = []
    block_id = pool._prev[pool._end]
    while block_id != pool._end:
        backwards.append(block_id)
        block_id = pool._prev[block_id]
    assert found == backwards[::-1]
    return found


def _check_pool(pool, tables):
    """Every block is null, free or referenced; counts are what tables say."""
    free = _free_list(pool)
    held = Counter(block_id for table in tables for block_id in table)
    assert sorted([0, *free, *held]) == list(range(pool.num_blocks))
    assert pool._refs == [held[block_id] for block_id in range(pool.num_blocks)]
    assert pool.num_free == len(free)
    assert pool.num_in_use == len(held)
    assert len(pool._hash_of) == len(pool._block_of) == pool.num_cached
    for block_hash, block_id in pool._block_of.items():
        assert pool._hash_of[block_id] == block_hash


def _check_scheduler(scheduler):
    """What must hold between two calls, told from the state alone."""
    scheduler.check_invariants()
    table, cache = scheduler._table, scheduler._table.cache
    _check_pool(cache.pool, cache._tables.values())
    running, waiting = table.running, list(table.waiting)
    assert len(waiting) == len(table.waiting)
    assert {r.request_id for r in running} == cache._tables.keys()
    for request in [*running, *waiting]:
        assert scheduler.get(request.request_id) is request
    assert scheduler.num_unfinished == len(running) + len(waiting)
    assert len({r.seat for r in running}) == len(running)
    for request in [*running, *waiting]:
        unknown = request.num_expected_tokens - len(request.token_ids)
        assert unknown == len(request.in_flight)
        assert request.in_flight == sorted(set(request.in_flight))
        assert len(request.token_ids) < request.max_total_tokens
    for request in running:
        num_blocks = len(cache._tables[request.request_id])
        assert request.status is RequestStatus.RUNNING
        assert 0 < request.num_computed_tokens <= num_blocks * cache.block_size
        assert request.num_computed_tokens <= request.num_expected_tokens
    for request in waiting:
        assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert request.seat is None
        assert request.num_computed_tokens == 0


def _check_index(scheduler, runner, requests):
    """Each block in the prefix index holds what its hash says, computed."""
    size = scheduler._table.cache.block_size
    chains = {}
    for request in requests:
        parent = b"jengine" + (request.cache_salt or "").encode()
        for end in range(size, len(request.token_ids) + 1, size):
            tokens = array("q", request.token_ids[end - size : end])
            parent = hashlib.sha256(parent + tokens.tobytes()).digest()
            chains[parent] = chain_of(request.token_ids[:end])
    for block_id, block_hash in scheduler._table.cache.pool._hash_of.items():
        last = runner.cache[block_id * size + size - 1]
        assert last is not None
        assert last.chain == chains[block_hash]


def _alone(request, *, vocab_size, poison=frozenset()):
    """Output, finish reason and stop reason of a request that nothing disturbs."""
    tokens = list(request.token_ids[: request.num_prompt_tokens])
    output = []
    while True:
        if poison.intersection(tokens):
            return output, "error", None
        token = next_token(tokens, request.options, vocab_size=vocab_size)
        tokens.append(token)
        output.append(token)
        if len(tokens) > request.options.stops_from:
            if token == request.eos_token_id:
                return output, "stop", None
            if token in request.ending_ids:
                return output, "stop", token
        if len(tokens) == request.max_total_tokens:
            return output, "length", None
