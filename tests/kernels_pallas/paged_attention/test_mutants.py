"""Planted bugs, each of which the checks of the kernel must see.

A mutant is a text of the kernel and what takes its place, in a copy of the kernel's
modules. A text that is no longer in the kernel fails its test: the list follows the
code.
"""

import functools
import importlib
import inspect
import itertools
import sys
import types

import numpy as np
import pytest

from kernels_pallas.paged_attention.problem import Operands, Problem

PACKAGE = "kernels_pallas.paged_attention"
MODULES = ("work", "kernel", "merge", "launch")  # in the order of their imports
SOURCES = {
    name: inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}"))
    for name in MODULES
}
MIXED_ROWS = [(0, 1), (15, 1), (199, 1), (0, 37), (128, 5), (9, 0), (76, 1), (90, 33)]
SINGLE_ROWS = [(before, 1) for before in (0, 15, 16, 31, 199, 300)]
TOLERANCE = 3e-6
# Options of a step; those of the call go to it.
MIXED = {}
DECODE = {"single_token_rows": True}
WINDOW = {"sliding_window": 40}
SINKS = {"sinks": True}
CAP = {"soft_cap": 2.0}

_copies = itertools.count()


def changed(old, new):
    """A `pallas_attention` without checks, one text of it replaced.

    Raises:
      ValueError: the text is not exactly once in the kernel.
    """
    counts = {name: text.count(old) for name, text in SOURCES.items()}
    if sum(counts.values()) != 1:
        raise ValueError(f"{old!r} is to be found once in the kernel: {counts}")
    copy = f"copied_kernel_{next(_copies)}"
    modules = {}
    for name, text in SOURCES.items():
        text = text.replace(old, new)
        for other in MODULES:
            text = text.replace(f"{PACKAGE}.{other} ", f"{copy}_{other} ")
        modules[f"{copy}_{name}"] = module = types.ModuleType(f"{copy}_{name}")
        sys.modules[module.__name__] = module
        exec(compile(text, module.__name__, "exec"), module.__dict__)
    for name in modules:
        del sys.modules[name]
    return functools.partial(attend_unchecked, modules[f"{copy}_launch"].attend_all)


def attend_unchecked(attend_all, *, metadata, tiling, interpret, scale, **rest):
    given = {name: rest.pop(name) for name in Operands._fields if name in rest}
    problem = Problem(
        tile=tiling.decode,
        scale=scale,
        group=given["queries"].shape[1] // given["keys"].shape[1],
        block_size=given["keys"].shape[2],
        head_dim=given["queries"].shape[2],
        num_tokens=given["queries"].shape[0],
        **rest,
    )
    operands = Operands(**given, **metadata._asdict())
    return attend_all(operands, problem, tiling, interpret=interpret)


def worst_error(paged, attention, options, splits=4):
    """The largest error over a step; infinity for one that is no number."""
    options = {"scale": 0.25} | options
    sizes = {"sinks": options.pop("sinks", False)}
    rows = MIXED_ROWS
    if options.get("single_token_rows"):
        rows, sizes = SINGLE_ROWS, sizes | {"num_rows": 8, "num_tokens": 8}
    step = paged.make(rows, **sizes)
    tiling = paged.tiles(splits=splits)
    got = paged.attend(step, tiling, attention=attention, **options)
    options.pop("single_token_rows", None)
    error = np.abs(got - paged.expected(step, **options)).max()
    return np.inf if np.isnan(error) else error


@pytest.mark.parametrize(
    ("splits", "options"), [(1, MIXED), (4, MIXED), (4, WINDOW), (4, DECODE | SINKS)]
)
def test_the_order_of_programs_does_not_matter(paged, splits, options):
    # Interpret mode runs programs one after another: a write to a neighbour's rows
    # goes unseen if the neighbour runs later.
    in_reverse = changed(
        "pl.program_id(axis) for axis",
        "pl.num_programs(axis) - 1 - pl.program_id(axis) for axis",
    )
    assert worst_error(paged, in_reverse, options, splits) < TOLERANCE


# name: (text, what takes its place, options of the step that shows it)
MUTANTS = {
    "keys end one late": (
        "end = before + jnp.minimum(work.token + problem.queries, work.end)",
        "end = before + jnp.minimum(work.token + problem.queries, work.end) + 1",
        DECODE,
    ),
    "keys end one early": (
        "end = before + jnp.minimum(work.token + problem.queries, work.end)",
        "end = before + jnp.minimum(work.token + problem.queries, work.end) - 1",
        DECODE,
    ),
    "a query does not see itself": (
        "sees = position[None, :] <= rows.position[:, None]",
        "sees = position[None, :] < rows.position[:, None]",
        DECODE,
    ),
    "queries see the future": (
        "sees = position[None, :] <= rows.position[:, None]",
        "sees = position[None, :] <= rows.position[:, None] + 99",
        DECODE,
    ),
    "keys are loaded without their mask": (
        "    feature, mask = features(problem, is_real)\n    return load(",
        "    feature, mask = features(problem, None)\n    return load(",
        DECODE,
    ),
    "a tile too many goes unmasked": (
        "full = lax.div(seen_by_first - origin, keys)",
        "full = lax.div(seen_by_first - origin + keys - 1, keys)",
        DECODE,
    ),
    "old totals are not rescaled": (
        "total = total * factor + jnp.sum",
        "total = total + jnp.sum",
        DECODE,
    ),
    "old values are not rescaled": (
        "attended * factor[:, None] + added",
        "attended + added",
        DECODE,
    ),
    "the wrong query head": (
        "work.head * group + lax.rem(row, group)",
        "work.head + lax.rem(row, group)",
        DECODE,
    ),
    "rows run past the tokens": (
        "is_real = (token < work.end) & (row",
        "is_real = (token < work.end + 1) & (row",
        MIXED,
    ),
    "offsets in a block of another size": (
        "work.head, lax.rem(position, block_size))",
        "work.head, lax.rem(position, jnp.int32(8)))",
        DECODE,
    ),
    "splits overlap": (
        "first = work.split * share",
        "first = jnp.maximum(work.split * share - 1, 0)",
        DECODE,
    ),
    "the last tile belongs to no split": (
        "share = lax.div(count + (splits - 1), jnp.int32(splits))",
        "share = lax.div(count, jnp.int32(splits))",
        DECODE,
    ),
    "another base of the logarithm": (
        "maximum + jnp.log2(total)",
        "maximum + jnp.log(total)",
        DECODE,
    ),
    "splits without keys count": (
        "log_sum = jnp.where(has_keys, (maximum",
        "log_sum = jnp.where(True, (maximum",
        DECODE | SINKS,
    ),
    "no scale": (
        "return scores * np.float32(problem.scale * LOG2_E)",
        "return scores * np.float32(LOG2_E)",
        DECODE,
    ),
    "positions of another row's end": (
        "position = work.seq_len - work.end + token",
        "position = work.seq_len - work.token + token",
        MIXED,
    ),
    "padding is left as it is": (
        "(work.row < 0) & (work.token < problem.num_tokens)",
        "(work.row < 0) & (work.token < 0)",
        MIXED,
    ),
    "the merge takes the first split": (
        "merged = jnp.sum(parts, axis=0)",
        "merged = parts[0]",
        DECODE,
    ),
    "a window too wide": (
        "position[None, :] > rows.position[:, None] - problem.sliding_window",
        "position[None, :] >= rows.position[:, None] - problem.sliding_window",
        WINDOW,
    ),
    "a window that starts late": (
        "origin = jnp.maximum(seen_by_first - problem.sliding_window, 0)",
        "origin = jnp.maximum(seen_by_first - problem.sliding_window + 1, 0)",
        DECODE | WINDOW,
    ),
    "windows of all queries start as one": (
        "if problem.sliding_window is not None and problem.tiled:",
        "if problem.sliding_window is not None and problem.single_token_rows:",
        WINDOW,
    ),
    "a sink in each split": (
        "is_first = jnp.broadcast_to(work.split == 0, shape)",
        "is_first = jnp.broadcast_to(work.split >= 0, shape)",
        DECODE | SINKS,
    ),
    "a sink in another base": (
        "sinks * np.float32(LOG2_E)",
        "sinks",
        DECODE | SINKS,
    ),
    "a cap without its factor 2": (
        "np.float32(2.0 * LOG2_E * problem.scale / cap)",
        "np.float32(LOG2_E * problem.scale / cap)",
        DECODE | CAP,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_every_planted_bug_is_seen(paged, name):
    old, new, options = MUTANTS[name]
    assert worst_error(paged, changed(old, new), options) > 10 * TOLERANCE


@pytest.mark.slow
def test_the_one_change_that_no_result_shows(paged):
    # Reads the padding of the table; the block found there is then not read. On a
    # GPU the last row's read could leave the table, so the mask stays.
    harmless = changed("at = (load(table, is_real),", "at = (load(table, None),")
    assert worst_error(paged, harmless, DECODE) < TOLERANCE


def test_a_text_that_is_gone_is_no_mutant():
    with pytest.raises(ValueError, match="to be found once"):
        changed("a text that the kernel does not have", "")
