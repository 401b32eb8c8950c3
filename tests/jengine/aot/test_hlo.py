"""Lines as XLA 0.11 wrote them, shortened."""

import pytest

from jengine.aot.hlo import count_collectives, count_copies, pallas_kernels

SHAPE = (58368, 8, 16, 128)
ARRAY = "bf16[58368,8,16,128]{3,2,1,0}"
MODULE = f"""\
%fused_scatter (param_0: {ARRAY}) -> {ARRAY} {{
  ROOT %scatter.1 = {ARRAY} scatter(%param_0, %ids, %new), to_apply=%region
}}
ENTRY %main {{
  %input_scatter_fusion = {ARRAY} fusion(%kv.1, %gemm), kind=kInput
  %pallas_call.4 = (f32[4,8,32]{{2,1,0}}, f32[4,8]{{1,0}}) custom-call(%q, %k),\
 custom_call_target="__gpu$xla.gpu.triton", metadata={{op_name="jit(decode)/layer_0"}},\
 backend_config={{grid_x = 8 : i32, ir = "ML\\EFR name", name =\
 "paged_attention_decode", num_stages = 5 : i32}}
  %pallas_call.5 = bf16[8,32,128]{{2,1,0}} custom-call(%a), custom_call_target=\
"__gpu$xla.gpu.triton", backend_config={{ir = "ML", name = "paged_attention_merge"}}
  %pallas_call.6 = bf16[8,32,128]{{2,1,0}} custom-call(%a), custom_call_target=\
"__gpu$xla.gpu.triton", backend_config={{ir = "ML", name = "paged_attention_merge"}}
  %gemm = f32[8,4096]{{1,0}} custom-call(%a), custom_call_target="__cublas$lt$matmul"
  %all-reduce.1 = bf16[8,4096]{{1,0}} all-reduce(%gemm), to_apply=%add
  %all-reduce-start = bf16[8,4096]{{1,0}} all-reduce-start(%gemm), to_apply=%add
  %all-reduce-done = bf16[8,4096]{{1,0}} all-reduce-done(%all-reduce-start)
  %all-gather-start = (f32[8,64]{{1,0}}, f32[8,128]{{1,0}}) all-gather-start(%logits)
  %copy.7 = bf16[8,4096]{{1,0}} copy(%small)
}}
"""


def test_writing_in_place_copies_nothing():
    assert count_copies(MODULE, SHAPE, "bfloat16") == 0


@pytest.mark.parametrize(
    "line",
    [
        f"  %copy.3 = {ARRAY} copy(%kv.1), metadata={{}}",
        f"  ROOT %copy.3 = {ARRAY} copy(%param_0)",
        f"  %copy-start.1 = ({ARRAY}, {ARRAY}, u32[]) copy-start(%kv.1)",
    ],
)
def test_a_copy_of_the_cache_is_seen(line):
    assert count_copies(f"{MODULE}{line}\n", SHAPE, "bfloat16") == 1
    assert count_copies(f"{MODULE}{line}\n{line}\n", SHAPE, "bfloat16") == 2


def test_copies_of_other_shapes_and_types_are_not_the_caches():
    module = MODULE + f"  %copy.3 = {ARRAY} copy(%kv.1)\n"
    assert count_copies(module, (58368, 4, 16, 128), "bfloat16") == 0
    assert count_copies(module, SHAPE, "float32") == 0


def test_collectives_in_two_halves_count_once():
    assert count_collectives(MODULE) == {"all-reduce": 2, "all-gather": 1}
    assert count_collectives("") == {}


def test_pallas_kernels_are_named_once_each():
    kernels = ("paged_attention_decode", "paged_attention_merge")
    assert pallas_kernels(MODULE) == kernels
    assert pallas_kernels("  %gemm = f32[8]{0} custom-call(%a)") == ()
