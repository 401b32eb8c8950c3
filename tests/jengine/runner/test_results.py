import math

import numpy as np
import pytest

from jengine.runner.results import Wanted, add_listed, line_logprobs, unpack_result

VOCAB_SIZE = 50


def bits(*values):
    return np.array(values, np.float32).view(np.int32).tolist()


def unpack(tokens, num_rows, sampling, lines, wanted=None):
    out = (
        None if tokens is None else np.array(tokens, np.int32).reshape(len(tokens), -1)
    )
    return unpack_result(
        out,
        step=3,
        num_rows=num_rows,
        sampling_rows=sampling,
        lines=lines,
        wanted=wanted,
        vocab_size=VOCAB_SIZE,
    )


def test_no_row_samples():
    assert unpack(None, 2, [], []) == (3, ((), ()), None, (), ())


def test_every_row_samples_and_padding_is_cut_off():
    assert unpack([7, 8, VOCAB_SIZE], 2, [0, 1], [0, 1]).sampled == ((7,), (8,))


@pytest.mark.parametrize(("lines", "out"), [([0, 2], [7, 0, 8]), (range(2), [7, 8, 0])])
def test_lines_go_back_to_their_rows(lines, out):
    assert unpack(out, 3, [0, 2], lines).sampled == ((7,), (), (8,))


def test_a_row_without_numbers_fails_alone():
    result = unpack([VOCAB_SIZE, 8], 3, [1, 2], range(2))
    assert (result.sampled, result.failed_rows) == (((), (), (8,)), (1,))


def test_padding_without_numbers_fails_nobody():
    result = unpack([7, VOCAB_SIZE], 1, [0], [0])
    assert (result.sampled, result.failed_rows) == (((7,),), ())


def test_logprobs_reach_the_rows_that_asked():
    lines = [[7, 2, *bits(-1.5), 4, 7, *bits(-0.5, -1.5)]] * 2
    result = unpack(lines, 3, [0, 2], range(2), [Wanted(-1), Wanted(1)])
    assert result.logprobs[:2] == (None, None)
    assert result.logprobs[2] == ((4, 7), (-0.5, -1.5), (1, 2), -1.5)


def line(token, rank, value, ids, best):
    return np.array([token, rank, *bits(value), *ids, *bits(*best)], np.int32)


def test_the_sampled_id_is_added_if_it_is_not_among_the_best():
    found = line_logprobs(line(9, 5, -4.0, [1, 2], [-0.5, -1.0]), 2)
    assert found == ((1, 2, 9), (-0.5, -1.0, -4.0), (1, 2, 5), -4.0)
    found = line_logprobs(line(2, 2, -1.0, [1, 2], [-0.5, -1.0]), 2)
    assert found == ((1, 2), (-0.5, -1.0), (1, 2), -1.0)


def test_asking_for_no_alternative_gives_the_sampled_id():
    found = line_logprobs(line(9, 5, -4.0, [1], [-0.5]), 0)
    assert found == ((9,), (-4.0,), (5,), -4.0)


def test_equal_values_share_a_rank():
    found = line_logprobs(line(1, 1, -1.0, [1, 2, 3], [-1.0, -1.0, -2.0]), 3)
    assert found.ranks == (1, 1, 3)


def test_values_that_are_no_numbers_do_not_break_it():
    found = line_logprobs(line(1, 1, math.nan, [1, 2], [math.nan, math.nan]), 2)
    assert found.ranks == (1, 2)


def test_listed_ids_follow_and_have_no_rank():
    found = line_logprobs(np.array(line(7, 2, -1.5, [4], [-0.5]), np.int32), 1)
    more = add_listed(found, (9, 7, 3), [-4.0, -1.5, -6.0, 0.0])
    assert more.token_ids == (4, 7, 9, 3)
    assert more.logprobs == (-0.5, -1.5, -4.0, -6.0)
    assert more.ranks == (1, 2, None, None)


def test_listed_values_are_read_only_by_those_who_asked():
    own = [7, 1, *bits(-0.5), 7, *bits(-0.5), *bits(*np.arange(-128.0, 0.0))]
    result = unpack([own] * 2, 2, [0, 1], range(2), [Wanted(1), Wanted(0, (5, 6))])
    assert result.logprobs[0].token_ids == (7,)
    assert result.logprobs[1].token_ids == (7, 5, 6)
    assert result.logprobs[1].logprobs == (-0.5, -128.0, -127.0)
