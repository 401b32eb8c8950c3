import numpy as np
import pytest

from jengine.bench.gpu_check.attention_case import AttentionCase, make_arrays
from jengine.bench.gpu_check.attention_oracle import expected_attention
from jengine.bench.gpu_check.compile_ahead import CompileAhead
from jengine.bench.gpu_check.parts.kernel import CASES, TOLERANCES, check
from jengine.bench.gpu_check.recorder import CheckError, SkipCaseError
from jengine.bench.gpu_check.target import find_target
from jengine.runner.device import GpuTarget
from kernels_pallas.paged_attention.tuning_table import BYTE, FULL, HALF

CASE = AttentionCase(
    name="few", rows=((2, 1), (0, 4)), heads=2, kv_heads=1, head_dim=16, block_size=8
)


class Program:
    """A lowered program that knows the answer, but for what `change` does to it."""

    def __init__(self, case, arrays, change=lambda out: out):
        out = np.zeros(arrays.queries.shape)
        out[: case.num_tokens] = expected_attention(case, arrays)
        self.out = change(out)

    def compile(self):
        return lambda arrays: self.out


def run_check(change=lambda out: out, dtype="float32", target=None):
    arrays = make_arrays(CASE, dtype)
    programs = CompileAhead({"x": lambda: Program(CASE, arrays, change)}, threads=1)
    return check(CASE, arrays, dtype, programs, "x", target or find_target())


def test_twelve_shapes_in_every_dtype_of_the_kernel():
    assert len({case.name for case in CASES}) == len(CASES) == 12
    assert set(TOLERANCES) == {*HALF, *FULL, *BYTE}
    for case in CASES:
        ones = [now == 1 for _, now in case.rows]
        assert ones == sorted(ones, reverse=True)  # rows of one token come first
    assert {case.block_size for case in CASES} >= {8, 16, 32, 128}


def test_the_right_answer_passes():
    fields = run_check()
    assert fields["relative_error"] < 1e-6
    assert fields["tolerance"] == TOLERANCES["float32"]


def wrong_in(token, value):
    def change(out):
        out[token, 0, 0] += value
        return out

    return change


@pytest.mark.parametrize("value", [0.1, np.nan, np.inf])
def test_one_wrong_number_is_found_and_named(value):
    with pytest.raises(CheckError, match="worst in token 3 of 5") as caught:
        run_check(wrong_in(3, value))
    assert not caught.value.fields["relative_error"] <= TOLERANCES["float32"]


def test_padding_may_hold_anything():
    assert run_check(wrong_in(5, np.nan))["relative_error"] < 1e-6


def test_rounding_to_the_dtype_passes():
    fields = run_check(lambda out: out * 1.004, dtype="bfloat16")
    assert fields["relative_error"] == pytest.approx(0.004, rel=0.01)


def test_an_old_card_skips_what_it_cannot_convert():
    old = find_target()._replace(gpu=GpuTarget("sm_80", 108))
    with pytest.raises(SkipCaseError, match="sm_80"):
        run_check(dtype="float8_e4m3fn", target=old)
    assert "summary" in run_check(dtype="float8_e5m2", target=old)
