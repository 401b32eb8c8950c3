"""Packing against plain loops, through the function that takes it apart."""

import random

import jax.numpy as jnp
import numpy as np
import pytest

from jengine.core.plan import SamplingOptions
from jengine.core.request import Request
from jengine.core.scheduler import Scheduler
from jengine.runner.bucket import make_buckets
from jengine.runner.layout import SamplingColumn
from jengine.runner.mirror import SeatMirror
from jengine.runner.pack import pack_forward, pack_mask, pack_sampling, row_arrays
from jengine.runner.step import StepContext, unpack_inputs
from jengine.testing.fake_runner import FakeRunner

NUM_BLOCKS = 30


class Stream:
    """Plans of a real scheduler, packed as the runner packs them."""

    def __init__(self, *, block_size=4, budget=32, seats=4, max_blocks=8):
        sizes = {
            "num_blocks": NUM_BLOCKS,
            "block_size": block_size,
            "token_budget": budget,
            "max_num_seqs": seats,
        }
        self.scheduler, self.fake = Scheduler(**sizes), FakeRunner(**sizes)
        self.mirror = SeatMirror(max_num_seqs=seats, max_blocks=max_blocks)
        self.buckets = make_buckets(
            max_num_seqs=seats, token_budget=budget, max_blocks=max_blocks
        )
        self.context = StepContext(
            None, None, block_size, NUM_BLOCKS * block_size, seats
        )
        self.tables, self.last_token = {}, np.arange(900, 900 + seats, dtype=np.int32)

    def ask(self, name, ids, output=6, **options):
        options = SamplingOptions(**options)
        self.scheduler.add(
            Request(name, ids, max_total_tokens=len(ids) + output, options=options)
        )

    def schedule(self):
        plan = self.scheduler.schedule()
        handle = self.fake.dispatch(plan)
        for row in plan.rows:
            before = [] if row.options else self.tables[row.seat]
            self.tables[row.seat] = [*before, *row.new_block_ids]
        self.mirror.apply(plan)
        return plan, handle

    def update(self, plan, handle):
        self.scheduler.update(plan, self.fake.collect(handle))

    def unpack(self, plan):
        seats = np.array([row.seat for row in plan.rows], np.int32)
        bucket = self.buckets.for_step(
            num_rows=len(seats),
            num_tokens=plan.num_tokens,
            longest_table=int(self.mirror.num_blocks[seats].max()),
        )
        ints = pack_forward(plan, self.mirror, bucket, row_arrays(plan))
        inputs = unpack_inputs(
            self.context, bucket, jnp.asarray(ints), jnp.asarray(self.last_token)
        )
        return bucket, inputs


def check(stream, plan):
    """Compare with loops over the plan; returns real positions and slots."""
    bucket, inputs = stream.unpack(plan)
    size = stream.context.block_size
    ids, positions, slots, starts = [], [], [], [0]
    for row in plan.rows:
        ids += [stream.last_token[row.seat]] * row.carries + list(row.token_ids)
        for position in range(
            row.num_computed_tokens, row.num_computed_tokens + row.num_tokens
        ):
            positions.append(position)
            block = stream.tables[row.seat][position // size]
            slots.append(block * size + position % size)
        starts.append(len(ids))
    count, rows = len(ids), len(plan.rows)
    padding = bucket.tokens - count
    assert inputs.token_ids.tolist() == ids + [0] * padding
    assert inputs.positions.tolist() == positions + [0] * padding
    assert inputs.slot_mapping.tolist() == slots + [stream.context.num_slots] * padding
    assert inputs.query_start_loc.tolist() == starts + [count] * (bucket.rows - rows)
    lens = [row.num_computed_tokens + row.num_tokens for row in plan.rows]
    assert inputs.seq_lens.tolist() == lens + [0] * (bucket.rows - rows)
    tables = np.zeros((bucket.rows, bucket.table_width), np.int32)
    for line, row in zip(tables, plan.rows, strict=False):
        table = stream.tables[row.seat]
        line[: len(table)] = table
    assert inputs.block_tables.tolist() == tables.tolist()
    wanted = [starts[i + 1] - 1 for i, row in enumerate(plan.rows) if row.samples]
    if bucket.single_token_rows:
        wanted = list(range(bucket.rows))
    assert inputs.logits_indices.tolist()[: len(wanted)] == wanted
    assert inputs.single_token_rows == (count == rows)
    return positions, slots


def test_f1_positions_and_slots():
    stream = Stream()
    stream.ask("A", [1, 2, 3, 4, 5])
    stream.ask("B", [1, 6, 5, 7, 8, 9, 10])
    stream.ask("C", [1, 12, 13])
    plan, handle = stream.schedule()
    positions, slots = check(stream, plan)
    assert positions == [*range(5), *range(7), *range(3)]
    assert slots == [4, 5, 6, 7, 8, *range(12, 19), 20, 21, 22]
    stream.update(plan, handle)
    plan, _ = stream.schedule()
    assert check(stream, plan) == ([5, 7, 3], [9, 19, 23])


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_cor_04_packed_steps_equal_loops_over_the_plan(seed, depth):
    rng = random.Random(seed)
    stream = Stream(block_size=rng.choice([1, 3, 4]), budget=16, max_blocks=24)
    for i in range(8):
        length = rng.randint(1, 14)
        stream.ask(f"r{i}", [rng.randrange(50) for _ in range(length)], 8)
    pending = []
    carried = False
    while stream.scheduler.num_unfinished:
        plan, handle = stream.schedule()
        if plan.rows:
            check(stream, plan)
        carried |= any(row.carries for row in plan.rows)
        pending.append((plan, handle))
        if len(pending) > depth:
            stream.update(*pending.pop(0))
    assert carried == bool(depth)


def test_c3_4_nothing_points_before_the_start():
    stream = Stream()
    stream.ask("a", [1, 2, 3])
    plan, _ = stream.schedule()
    _, inputs = stream.unpack(plan)
    for name in ("slot_mapping", "block_tables", "logits_indices", "positions"):
        assert getattr(inputs, name).min() >= 0


@pytest.mark.parametrize("keep_places", [False, True])
def test_sampling_lines(keep_places):
    stream = Stream(budget=8)
    stream.ask("a", [1, 2], temperature=0.5, top_k=3, seed=2**32 + 4)
    stream.ask("b", list(range(9)), top_p=0.5)
    plan, _ = stream.schedule()
    assert [row.samples for row in plan.rows] == [True, False]
    packed = pack_sampling(
        stream.mirror, row_arrays(plan), num_rows=4, keep_places=keep_places
    )
    assert packed[0, : SamplingColumn.BIASED].tolist() == [0, 2, 4, 1, 3]
    floats = packed[:, SamplingColumn.TEMPERATURE : SamplingColumn.PRESENCE]
    floats = np.ascontiguousarray(floats).view(np.float32)
    assert floats.tolist() == [[0.5, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]]
    assert packed[1:, SamplingColumn.SEAT].tolist() == [4, 4, 4]  # past the last seat


def test_sampling_lines_keep_their_places_or_close_up():
    stream = Stream()
    for name in "abc":
        stream.ask(name, [1, 2])
    plan, _ = stream.schedule()
    arrays = row_arrays(plan)._replace(sampling_rows=[0, 2])
    lines = [
        pack_sampling(stream.mirror, arrays, num_rows=4, keep_places=keep)
        for keep in (True, False)
    ]
    seats = [line[:, SamplingColumn.SEAT].tolist() for line in lines]
    assert seats == [[0, 4, 2, 4], [0, 2, 4, 4]]


def test_stp_a_mask_forbids_stop_ids_early_only():
    stream = Stream()
    stream.ask("a", [1, 2], stops_from=4, stop_ids=(0, 31, 33))
    stream.ask("b", [1, 2], stops_from=2, stop_ids=(1,))
    masks = []
    for _ in range(3):
        plan, handle = stream.schedule()
        packed = pack_sampling(
            stream.mirror, row_arrays(plan), num_rows=2, keep_places=True
        )
        masks.append(pack_mask(packed, stream.mirror, vocab_size=40))
        stream.update(plan, handle)
    for mask in masks[:2]:
        bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little")[:, :40]
        assert np.nonzero(bits[0] == 0)[0].tolist() == [0, 31, 33]
        assert bits[1].all()
    assert masks[2] is None
