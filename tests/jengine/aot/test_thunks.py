"""Launch lists as XLA 0.11 wrote them, shortened."""

import pytest

from jengine.aot.thunks import Launch, launches_per_layer, parse_launches

# A layer of five launches, thrice; the first has the step's preparation mixed in.
DECODE = """\
001: kCopy         [source       | next=002 (1)] kCopy
002: kPartitionId  [source       | next=003 (1)] kPartitionId
003: kCustomKernel [prev=002 (1) | next=004 (1)] gemm_fusion_dot grid: [1536, 1, 1]\
 threads: [64, 1, 1]  shared_memory: 768 bytes
004: kCustomKernel [prev=003 (1) | next=005 (1)] input_scatter_fusion_2 grid: [8, 1, 1]\
 threads: [128, 1, 1]  shared_memory: 0 bytes
005: kCustomKernel [prev=004 (1) | next=006 (1)] loop_compare_fusion grid: [8, 1, 1]\
 threads: [128, 1, 1]  shared_memory: 0 bytes
006: kCustomKernel [prev=005 (1) | next=007 (1)] paged_attention_decode grid: [8, 8, 4]\
 threads: [128, 1, 1]  shared_memory: 72192 bytes
007: kAllReduce    [prev=006 (1) | next=008 (1)] kAllReduce
008: kCublasLtMatmul [prev=007 (1) | next=009 (1)] kCublasLtMatmul
009: kCustomKernel [prev=008 (1) | next=010 (1)] gemm_fusion_dot grid: [1536, 1, 1]
010: kCustomKernel [prev=009 (1) | next=011 (1)] input_scatter_fusion_2 grid: [8, 1, 1]
011: kCustomKernel [prev=010 (1) | next=012 (1)] paged_attention_decode grid: [8, 8, 4]
012: kAllReduce    [prev=011 (1) | next=013 (1)] kAllReduce
013: kCublasLtMatmul [prev=012 (1) | next=014 (1)] kCublasLtMatmul
014: kCustomKernel [prev=013 (1) | next=015 (1)] gemm_fusion_dot grid: [1536, 1, 1]
015: kCustomKernel [prev=014 (1) | next=016 (1)] input_scatter_fusion_2 grid: [8, 1, 1]
016: kCustomKernel [prev=015 (1) | next=017 (1)] paged_attention_decode grid: [8, 8, 4]
017: kAllReduce    [prev=016 (1) | next=018 (1)] kAllReduce
018: kCublasLtMatmul [prev=017 (1) | sink        ] kCublasLtMatmul
"""
LOOP = """\
010: kCustomKernel [source        | next=011 (1) ] loop_broadcast_fusion grid: [1, 1, 1]
011: kWhile        [prev=010 (1)  | next=014 (1) ]
condition:
    012: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1]
  body:
    013: kCustomKernel [source       | sink        ] loop_add_fusion_1 grid: [1, 1, 1]
014: kAllReduceStart [prev=011 (1)  | next=015 (1) ] kAllReduceStart
015: kAllReduceDone [prev=014 (1)  | sink ] kAllReduceDone
"""


def test_each_line_is_a_launch():
    launches = parse_launches(DECODE)
    assert len(launches) == 18
    assert launches[5] == Launch("CustomKernel", "paged_attention_decode", 72192)
    assert launches[6] == Launch("AllReduce", "kAllReduce", 0)


def test_control_flow_and_second_halves_start_nothing():
    assert [launch.name for launch in parse_launches(LOOP)] == [
        "loop_broadcast_fusion",
        "loop_compare_fusion",
        "loop_add_fusion_1",
        "kAllReduceStart",
    ]


def test_text_of_another_kind_has_no_launches():
    assert parse_launches("condition:\n\n  body:\n") == ()


def test_a_layer_is_what_recurs():
    assert launches_per_layer(parse_launches(DECODE), 3) == 5


@pytest.mark.parametrize("layers", [0, 1, 7])
def test_without_layers_nothing_recurs(layers):
    assert launches_per_layer(parse_launches(DECODE), layers) is None


def test_where_votes_are_even_the_shorter_layer_wins():
    names = ["a", "b", "x", "c", "d", "a", "b", "c", "d"]
    launches = [Launch("CustomKernel", name, 0) for name in names]
    assert launches_per_layer(launches, 2) == 4
