"""The real checkpoint through the whole engine; the oracle is transformers."""

import json
import pathlib

import numpy as np
import pytest

from jengine import LLM, SamplingParams

RECORD = pathlib.Path(__file__).parent / "data" / "smollm2_greedy.json"
pytestmark = pytest.mark.checkpoint  # one of them is quick enough for every run


# Small enough to preempt, and with few programs: each takes seconds to compile.
TIGHT = {
    "num_gpu_blocks_override": 14,
    "max_model_len": 192,
    "max_num_batched_tokens": 16,
}


@pytest.fixture(scope="module")
def record():
    """What transformers generates in float32 for 12 prompts, and how surely."""
    return json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def make_smollm2(smollm2_gguf, tmp_path_factory):
    """Makes engines of the real checkpoint that share one compilation cache."""
    cache = tmp_path_factory.mktemp("xla")

    def make(**options):
        small = {
            "max_num_seqs": 12,
            "max_num_batched_tokens": 256,
            "num_gpu_blocks_override": 100,
            "max_model_len": 256,
            "compilation_cache_dir": str(cache),
        }
        return LLM(str(smollm2_gguf), **(small | options))

    return make


def _check(llm, record, *, alone=False):
    params = SamplingParams(temperature=0, max_tokens=16)
    prompts = [{"prompt_token_ids": entry["prompt_ids"]} for entry in record]
    if alone:
        outputs = [llm.generate(p, params, use_tqdm=False)[0] for p in prompts]
    else:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    for output, entry in zip(outputs, record, strict=True):
        done = output.outputs[0]
        sure = entry["ids"][: entry["num_sure"]]
        assert done.token_ids[: len(sure)] == sure, entry["prompt"]
        if entry["num_sure"] == len(entry["ids"]):
            assert done.token_ids == entry["ids"]
            assert done.text == entry["text"]
    assert not llm.llm_engine.has_unfinished_requests()
    llm.llm_engine.check_invariants()
    assert llm.stats.num_blocks_in_use == 0


def test_greedy_ids_equal_transformers_together_alone_and_cached(make_smollm2, record):
    llm = make_smollm2()
    _check(llm, record)
    assert llm.stats.prefix_cache_hits == 0
    _check(llm, record, alone=True)
    assert llm.stats.prefix_cache_hits > 0
    texts = [entry["prompt"] for entry in record]
    params = SamplingParams(temperature=0, max_tokens=1)
    outputs = llm.generate(texts, params, use_tqdm=False)
    assert [o.prompt_token_ids for o in outputs] == [e["prompt_ids"] for e in record]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "preempts"),
    [
        ({"enable_prefix_caching": False, "async_scheduling": False}, False),
        ({"max_num_batched_tokens": 16}, False),
        (TIGHT, True),
        (TIGHT | {"async_scheduling": False}, True),
    ],
)
def test_greedy_ids_equal_transformers_under_any_schedule(
    make_smollm2, record, options, preempts
):
    llm = make_smollm2(**options)
    _check(llm, record)
    assert (llm.stats.num_preemptions > 0) is preempts


@pytest.mark.slow
def test_first_logprobs_equal_transformers(make_smollm2, record):
    llm = make_smollm2()
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=5)
    prompts = [{"prompt_token_ids": entry["prompt_ids"]} for entry in record]
    for output, entry in zip(
        llm.generate(prompts, params, use_tqdm=False), record, strict=True
    ):
        got = output.outputs[0].logprobs[0]
        want = {int(t): value for t, value in entry["first_logprobs"].items()}
        common = got.keys() & want.keys()
        assert len(common) >= 4
        np.testing.assert_allclose(
            [got[t].logprob for t in common], [want[t] for t in common], atol=1e-3
        )


@pytest.mark.slow
def test_64_mixed_requests_in_one_call(make_smollm2, record):
    llm = make_smollm2()  # 12 seats: the others wait
    rng = np.random.default_rng(0)
    ids = [i for entry in record for i in entry["prompt_ids"]]
    prompts, params = [], []
    for number, length in enumerate(np.linspace(4, 200, 64).astype(int)):
        start = int(rng.integers(0, len(ids)))
        prompts.append({"prompt_token_ids": np.resize(ids[start:], length).tolist()})
        params.append(
            SamplingParams(
                temperature=[0, 1, 0.7][number % 3],
                top_p=[1, 0.9][number % 2],
                seed=number,
                max_tokens=32,
                ignore_eos=True,
            )
        )
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [32] * 64
    assert [o.prompt_token_ids for o in outputs] == [
        p["prompt_token_ids"] for p in prompts
    ]
    # Some again, alone: the same whatever their neighbours were. Only the start, since
    # other sizes round otherwise, and a near tie may turn a late choice.
    for number in (2, 31):
        (alone,) = llm.generate(prompts[number], params[number], use_tqdm=False)
        together = outputs[number].outputs[0].token_ids
        assert alone.outputs[0].token_ids[:8] == together[:8]


@pytest.mark.slow
def test_chat_uses_the_template_of_the_file(make_smollm2):
    llm = make_smollm2()
    messages = [{"role": "user", "content": "What is 2+2?"}]
    params = SamplingParams(temperature=0, max_tokens=12)
    (output,) = llm.chat(messages, params, use_tqdm=False)
    hf = llm.get_tokenizer()
    want = hf.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert output.prompt == want
    assert output.prompt_token_ids == hf.encode(want, add_special_tokens=False)
    assert "4" in output.outputs[0].text
