"""Chooses the programs to compile, and what the others' figures follow from.

An engine has the same program in many sizes, and each size in many variants: ways to
sample, widths of the block table. The plainest variant is compiled in the sizes around
each change of the kernels' tiles, and the others in the largest size, except that ways
to sample which also report log-probabilities are compiled without that. The figures of
a variant in another size are those of the plainest one there, and what the variant and
the report add in the largest size; `conclude` does the sum.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from jengine.aot.abstract import attention_of
from jengine.aot.conclude import Basis
from jengine.aot.survey import Survey
from jengine.logprobs import MOST_LISTED_IDS
from jengine.runner.layout import SamplingColumn, forward_layout
from jengine.runner.pallas_attention import PallasAttend
from jengine.runner.program_keys import DecodeKey, ForwardKey, SampleKey, StepKey
from jengine.runner.sample import SampleMode
from kernels_pallas.paged_attention import Tile

INT_BYTES = 4


class HostBytes(NamedTuple):
    """What a program exchanges with the host, which grows with its size.

    Attributes:
      arguments: bytes that it takes.
      results: bytes that it returns, and hidden states of the step's tokens.
    """

    arguments: int
    results: int


def chosen(survey: Survey) -> list[int]:
    """Return the numbers of the programs that are compiled."""
    if survey.request.all_sizes:
        return list(range(len(survey.keys)))
    return [n for n, key in enumerate(survey.keys) if _is_chosen(survey, key)]


def checked(survey: Survey) -> list[int]:
    """Return programs to compile besides, as a check on what is concluded.

    One of each kind, of a middle size and not the plainest.
    """
    if survey.request.all_sizes:
        return []
    left = [key for key in survey.keys if not _is_chosen(survey, key)]
    kinds = [
        [key for key in left if isinstance(key, kind) and _is_odd(survey, key)]
        for kind in (DecodeKey, ForwardKey, SampleKey)
    ]
    middle = [keys[len(keys) // 2] for keys in kinds if keys]
    return [survey.keys.index(key) for key in middle]


def basis_of(survey: Survey, key: StepKey) -> Basis | None:
    """Return what a program's figures follow from; None where it is compiled."""
    if survey.request.all_sizes or _is_chosen(survey, key):
        return None
    sizes, size = sizes_of(survey, key), size_of(key)
    known = compiled_sizes(survey, key)
    below = max(s for s in known if s <= size)
    above = min(s for s in known if s >= size)
    plain = plainest(survey, key)
    like = resized(key, sizes[-1])
    largest = resized(plain, sizes[-1])
    if isinstance(like, SampleKey) and not _is_chosen(survey, like):
        like, reporting = silent(like), reports(like)
    else:
        reporting = largest
    more, less = host_bytes(survey, like), host_bytes(survey, key)
    return Basis(
        below=survey.keys.index(resized(plain, below)),
        above=survey.keys.index(resized(plain, above)),
        share=(size - below) / max(1, above - below),
        like=survey.keys.index(like),
        reporting=survey.keys.index(reporting),
        largest=survey.keys.index(largest),
        rows_share=rows_of(key) / rows_of(like),
        argument_bytes_less=more.arguments - less.arguments,
        output_bytes_less=more.results - less.results,
    )


def compiled_sizes(survey: Survey, key: StepKey) -> list[int]:
    """Return the sizes at which the plainest variant of a program is compiled.

    Of the sizes that share a choice of tiles the smallest and the largest.
    """
    sizes, plain = sizes_of(survey, key), plainest(survey, key)
    alike = itertools.groupby(
        sizes, lambda size: tiles_of(survey, resized(plain, size))
    )
    groups = [list(group) for _, group in alike]
    return sorted({end for group in groups for end in (group[0], group[-1])})


def tiles_of(survey: Survey, key: StepKey) -> tuple[Tile, ...]:
    """Return the tiles of the kernels that a program launches."""
    attention = attention_of(survey)
    if isinstance(key, SampleKey) or not isinstance(attention, PallasAttend):
        return ()
    bucket = key.bucket
    tiling = attention.tiling(num_tokens=bucket.tokens, num_rows=bucket.rows)
    if bucket.single_token_rows:
        return (tiling.decode,)
    return (tiling.decode, tiling.prefill)


def sizes_of(survey: Survey, key: StepKey) -> Sequence[int]:
    """Return the sizes in which there is a program, ascending."""
    is_mixed = isinstance(key, ForwardKey) and not key.bucket.single_token_rows
    return survey.buckets.tokens if is_mixed else survey.buckets.rows


def size_of(key: StepKey) -> int:
    """Return a program's size: tokens of a mixed step, else rows."""
    return key.rows if isinstance(key, SampleKey) else key.bucket.tokens


def rows_of(key: StepKey) -> int:
    """Return a program's rows."""
    return key.rows if isinstance(key, SampleKey) else key.bucket.rows


def resized(key: StepKey, size: int) -> StepKey:
    """Return the same variant in another size."""
    if isinstance(key, SampleKey):
        return key._replace(rows=size)
    rows = size if key.bucket.single_token_rows else key.bucket.rows
    return key._replace(bucket=key.bucket._replace(tokens=size, rows=rows))


def plainest(survey: Survey, key: StepKey) -> StepKey:
    """Return the plainest variant of the same size: greedy, narrow tables."""
    if isinstance(key, SampleKey):
        return SampleKey(key.rows, SampleMode())
    bucket = key.bucket._replace(table_width=survey.buckets.table_widths[0])
    if bucket.single_token_rows:
        return DecodeKey(bucket, SampleMode())
    return ForwardKey(bucket)


def host_bytes(survey: Survey, key: StepKey) -> HostBytes:
    """Return what of a program's arguments and results grows with its size."""
    match key:
        case ForwardKey(bucket):
            states = bucket.tokens * survey.model.hidden_size * survey.itemsize
            return HostBytes(INT_BYTES * forward_layout(bucket).size, states)
        case DecodeKey(bucket, mode):
            ints = forward_layout(bucket).size + bucket.rows * len(SamplingColumn)
        case SampleKey(rows, mode):
            mask = -(-survey.model.vocab_size // 32) if mode.masked else 0
            listed = MOST_LISTED_IDS if mode.listed else 0
            ints = rows * (len(SamplingColumn) + mask + listed)
    shown = 0 if mode.num_logprobs is None else 2 + 2 * mode.num_logprobs
    shown += MOST_LISTED_IDS if mode.listed else 0
    return HostBytes(INT_BYTES * ints, INT_BYTES * rows_of(key) * (1 + shown))


def _is_chosen(survey: Survey, key: StepKey) -> bool:
    size = size_of(key)
    if key == plainest(survey, key) and size in compiled_sizes(survey, key):
        return True
    return size == sizes_of(survey, key)[-1] and not _is_sum(key)


def _is_sum(key: StepKey) -> bool:
    """Tell a way to sample and report that are each compiled without the other."""
    if not isinstance(key, SampleKey) or key.mode.num_logprobs is None:
        return False
    return not key.mode.adjusted and key != reports(key)


def silent(key: SampleKey) -> SampleKey:
    """Return what samples alike and reports nothing."""
    default = SampleMode()
    mode = key.mode._replace(num_logprobs=default.num_logprobs, values=default.values)
    return key._replace(mode=mode)


def reports(key: SampleKey) -> SampleKey:
    """Return what reports alike and samples in the plainest way."""
    mode = key.mode
    plain = SampleMode(num_logprobs=mode.num_logprobs, values=mode.values)
    return key._replace(mode=plain)


def _is_odd(survey: Survey, key: StepKey) -> bool:
    """Tell what differs much from the plainest of its kind."""
    match key:
        case SampleKey(_, mode):
            shows = mode.num_logprobs is not None
            return shows and mode.filtered and not mode.masked
        case DecodeKey(bucket, mode):
            is_odd = mode.random
        case ForwardKey(bucket):
            is_odd = not bucket.single_token_rows
    return is_odd and bucket.table_width == survey.buckets.table_widths[-1]
