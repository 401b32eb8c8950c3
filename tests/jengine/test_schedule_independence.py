"""What a request gets does not depend on what the engine does meanwhile.

Requests with options of every kind are drawn at random, and run alone, one after the
other; then together, added at random moments to an engine of other limits. The cases
of `test_cases_cor` and `test_cases_lpr` compare with transformers what this compares
with itself.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jengine import RequestOutputKind, SamplingParams
from jengine.testing import write_byte_tokenizer, write_random_checkpoint

VOCAB = 320
LIMITS = {
    "sync": {"async_scheduling": False},
    "small budget": {"max_num_batched_tokens": 8},
    "few seats": {"max_num_seqs": 2, "max_num_batched_tokens": 16},
    "small pool": {"block_size": 8, "num_gpu_blocks_override": 10},
    "uncached": {"enable_prefix_caching": False, "long_prefill_token_threshold": 5},
}
TOKENS = st.integers(3, VOCAB - 1)
# Starts in common, so that the prefix cache has something to find.
STEMS = [[7 * i % 317 + 3 for i in range(start, start + 24)] for start in (0, 50)]
PROMPTS = st.builds(
    lambda stem, length, tail: STEMS[stem][:length] + tail,
    st.integers(0, 1),
    st.integers(0, 24),
    st.lists(TOKENS, min_size=1, max_size=9),
)
BIASES = st.dictionaries(TOKENS, st.sampled_from([-100.0, -2.0, 3.0]), max_size=3)
OPTIONS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.0, 0.7, 1.3]),
        "seed": st.integers(0, 2**64 - 1),
        "max_tokens": st.integers(1, 14),
        "ignore_eos": st.booleans(),
    },
    optional={
        "n": st.just(2),
        "top_k": st.integers(1, 40),
        "top_p": st.sampled_from([0.3, 0.9]),
        "min_p": st.sampled_from([0.02, 0.2]),
        "presence_penalty": st.sampled_from([-1.0, 0.5]),
        "frequency_penalty": st.sampled_from([-0.5, 1.0]),
        "repetition_penalty": st.sampled_from([0.8, 1.5]),
        "logit_bias": BIASES,
        "allowed_token_ids": st.lists(TOKENS, min_size=20, max_size=40),
        "stop_token_ids": st.lists(TOKENS, max_size=30),
        "stop": st.lists(st.sampled_from(["a", "e", "th", "~"]), max_size=2),
        "logprobs": st.integers(0, 3),
        "prompt_logprobs": st.integers(0, 2),
        "logprob_token_ids": st.lists(TOKENS, max_size=3),
    },
)
REQUESTS = st.lists(
    st.tuples(PROMPTS, OPTIONS, st.integers(0, 4)), min_size=2, max_size=6
)


@pytest.fixture(scope="module")
def make_f2(tmp_path_factory, make_llm):
    """Makes engines on a model that uses its history, each only once."""
    folder = tmp_path_factory.mktemp("f2_text")
    write_random_checkpoint(folder)
    write_byte_tokenizer(folder)
    made = {}

    def make(name):
        if name not in made:
            limits = {"max_model_len": 64} | LIMITS.get(name, {})
            made[name] = make_llm(folder, skip_tokenizer_init=False, **limits)
        return made[name]

    return make


def run_alone(llm, requests):
    params = [SamplingParams(**options) for _, options, _ in requests]
    return [
        llm.generate({"prompt_token_ids": prompt}, one, use_tqdm=False)[0]
        for (prompt, _, _), one in zip(requests, params, strict=True)
    ]


def run_together(llm, requests):
    """Each request comes some steps after the one before it."""
    engine, last = llm.llm_engine, {}
    kind = RequestOutputKind.FINAL_ONLY

    def step():
        last.update((output.request_id, output) for output in engine.step())

    for number, (prompt, options, num_steps) in enumerate(requests):
        params = SamplingParams(**options, output_kind=kind)
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        for _ in range(num_steps):
            step()
    while engine.has_unfinished_requests():
        step()
    return [last[str(number)] for number in range(len(requests))]


def check_logprobs(found, expected):
    if found is None or expected is None:
        assert found is expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            values = {token: entry.logprob for token, entry in theirs.items()}
            shown = {token: entry.logprob for token, entry in ours.items()}
            # Sums in another order, of logits in the tens: float32 to a few units.
            assert shown == pytest.approx(values, rel=1e-5, abs=3e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],  # each example is many steps: no shrinking
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(requests=REQUESTS)
def test_the_schedule_changes_nothing(make_f2, check_idle, name, requests):
    alone = run_alone(make_f2("plain"), requests)
    llm = make_f2(name)
    for ours, theirs in zip(run_together(llm, requests), alone, strict=True):
        check_logprobs(ours.prompt_logprobs, theirs.prompt_logprobs)
        for one, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert one.token_ids == other.token_ids
            assert one.text == other.text
            ends = (other.finish_reason, other.stop_reason)
            assert (one.finish_reason, one.stop_reason) == ends
            check_logprobs(one.logprobs, other.logprobs)
    check_idle(llm)
