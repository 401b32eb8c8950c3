"""An engine on the Pallas kernels, interpreted, against transformers and the XLA path.

Interpreted kernels take part in long programs, so there are few buckets here.
"""

import pytest

from jengine import SamplingParams

SMALL = {
    "max_num_seqs": 2,
    "max_num_batched_tokens": 16,
    "max_model_len": 64,
    "num_gpu_blocks_override": 12,
    "block_size": 8,
}


def _ids(llm, entries, **params):
    options = {"temperature": 0, "max_tokens": 8, "ignore_eos": True} | params
    outputs = llm.generate(
        [entry.prompt for entry in entries], SamplingParams(**options), use_tqdm=False
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module")
def engines(make_llm, f2_dir):
    return {
        name: make_llm(f2_dir, attention_backend=name, **SMALL)
        for name in ("xla", "pallas")
    }


def test_greedy_ids_are_those_of_transformers(engines, f2_greedy, check_idle):
    entries = [f2_greedy[length - 1] for length in (1, 7, 8, 9, 17, 31, 40, 48)]
    for name, llm in engines.items():
        found = _ids(llm, entries)  # more rows than seats, and chunked prompts
        for ids, entry in zip(found, entries, strict=True):
            expected = entry.expected(8)
            assert ids[: len(expected)] == expected, name
        assert llm.stats.num_preemptions > 0
        check_idle(llm)


@pytest.mark.slow
def test_sampled_ids_are_those_of_the_xla_path(engines, f2_greedy):
    entries = f2_greedy[10:14]
    options = {"temperature": 0.8, "top_k": 20, "seed": 7}
    xla, pallas = (_ids(llm, entries, **options) for llm in engines.values())
    assert xla == pallas
