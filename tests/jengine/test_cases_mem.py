"""Pool, queue and life cycle: nobody waits for ever, nothing is lost."""

import logging
import random
import signal
import time

import pytest

from jengine import SamplingParams
from jengine.testing import write_random_checkpoint


def _params(max_tokens, **options):
    return SamplingParams(
        temperature=0, max_tokens=max_tokens, ignore_eos=True, **options
    )


def _step_all(engine):
    """Step to the end; the ids of each step's outputs, and the last outputs."""
    trace, last = [], {}
    while engine.has_unfinished_requests():
        outputs = engine.step()
        trace.append([o.request_id for o in outputs])
        last |= {o.request_id: o for o in outputs}
    return trace, last


def test_mem_01_requests_that_could_never_fit_are_refused(
    f2_dir, f2_greedy, make_llm, check_idle, caplog
):
    with caplog.at_level(logging.WARNING, "jengine"):
        llm = make_llm(f2_dir, num_gpu_blocks_override=4)
    assert "48 tokens" in caplog.text
    small = f2_greedy[9]
    for prompt in ([7] * 60, [7] * 65, [7] * 48):
        with pytest.raises(ValueError, match="47"):
            llm.generate([prompt, small.prompt], _params(5), use_tqdm=False)
    # Filling the three usable blocks exactly, and ending there.
    entry = f2_greedy[39]
    (full,) = llm.generate(entry.prompt, _params(100), use_tqdm=False)
    assert full.outputs[0].token_ids == entry.ids[:8]
    assert full.outputs[0].finish_reason == "length"
    # Two that fit one at a time only, and a small one behind them.
    both = [f2_greedy[39], f2_greedy[38], small]
    outputs = llm.generate([e.prompt for e in both], _params(7), use_tqdm=False)
    for output, one in zip(outputs, both, strict=True):
        assert output.outputs[0].token_ids == one.expected(7)
    check_idle(llm)


@pytest.mark.parametrize("blocks", [0, 1])
def test_mem_01_a_pool_without_usable_blocks_is_refused(f2_dir, make_llm, blocks):
    with pytest.raises(ValueError, match="block"):
        make_llm(f2_dir, num_gpu_blocks_override=blocks)


def test_mem_01_a_pool_sized_by_bytes_must_hold_max_model_len(f2_dir, make_llm):
    # 2 layers x keys and values x 2 heads x 16 features x 4 bytes = 512 a token.
    options = {"num_gpu_blocks_override": None, "max_model_len": 256}
    with pytest.raises(ValueError, match=r"max_model_len is 256.*at most 240"):
        make_llm(f2_dir, kv_cache_memory_bytes=512 * 16 * 16, **options)
    llm = make_llm(f2_dir, kv_cache_memory_bytes=512 * 16 * 17, **options)
    assert llm.stats.num_blocks == 16
    fitted = make_llm(
        f2_dir,
        kv_cache_memory_bytes=512 * 16 * 9,
        num_gpu_blocks_override=None,
        max_model_len="auto",
    )
    with pytest.raises(ValueError, match="127"):
        fitted.generate([[7] * 128], _params(1), use_tqdm=False)


# An interrupt may strike in a callback of the garbage collector, which swallows it and
# leaves a warning: nothing that the engine could do anything about.
swallowed_interrupts = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


class _Interrupter:
    """Raises KeyboardInterrupt in the main thread after a while."""

    def __init__(self, delay):
        self._delay = delay

    def __enter__(self):
        self._old = signal.signal(signal.SIGALRM, self._raise)
        signal.setitimer(signal.ITIMER_REAL, self._delay)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._old)

    @staticmethod
    def _raise(*_):
        raise KeyboardInterrupt


@swallowed_interrupts
@pytest.mark.parametrize("ahead", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_mem_02_interrupts_leave_an_engine_that_can_be_used(
    f2_dir, f2_greedy, make_llm, check_idle, ahead
):
    llm = make_llm(f2_dir, async_scheduling=ahead, num_gpu_blocks_override=40)
    prompts = [e.prompt for e in f2_greedy[:50]]
    control = f2_greedy[20]
    started = time.perf_counter()
    llm.generate(prompts, _params(20), use_tqdm=False)  # compiles
    started = time.perf_counter()
    llm.generate(prompts, _params(20), use_tqdm=False)
    whole = time.perf_counter() - started
    rng = random.Random(0)
    interrupted = 0
    for _ in range(20):
        try:
            with _Interrupter(rng.uniform(0.0005, whole)):
                llm.generate(prompts, _params(40), use_tqdm=False)
        except KeyboardInterrupt:
            interrupted += 1
        check_idle(llm)
        (output,) = llm.generate(control.prompt, _params(12), use_tqdm=False)
        assert output.outputs[0].token_ids == control.expected(12)
        check_idle(llm)
    assert interrupted > 10


@swallowed_interrupts
def test_mem_02_other_requests_survive_an_interrupt(f2_dir, f2_greedy, make_llm):
    llm = make_llm(f2_dir, num_gpu_blocks_override=60)
    mine, other = f2_greedy[30], f2_greedy[20]
    rng = random.Random(1)
    for round_number in range(12):
        llm.llm_engine.add_request("other", other.prompt, _params(200, logprobs=1))
        try:
            with _Interrupter(rng.uniform(0.001, 0.15)):
                llm.generate([mine.prompt] * 4, _params(60), use_tqdm=False)
        except KeyboardInterrupt:
            pass
        _, last = _step_all(llm.llm_engine)
        done = last["other"].outputs[0]
        # Long enough to outlive the interrupt, whatever it strikes.
        expected = other.expected(64)
        assert done.token_ids[: len(expected)] == expected, round_number
        assert len(done.token_ids) == len(done.logprobs) == 200
        own = sum(
            e[t].logprob for e, t in zip(done.logprobs, done.token_ids, strict=True)
        )
        assert done.cumulative_logprob == pytest.approx(own, abs=1e-4)


def test_mem_02_an_error_in_a_callback_costs_only_the_call(
    f2_dir, f2_greedy, make_llm, check_idle
):
    class Bar:
        def __init__(self, **_):
            self.format_dict = {"elapsed": 0}

        def update(self, _):
            raise RuntimeError("the user's own mistake")

        def close(self):
            pass

    llm = make_llm(f2_dir)
    prompts = [e.prompt for e in f2_greedy[:6]]
    with pytest.raises(RuntimeError, match="own mistake"):
        llm.generate(prompts, _params(8), use_tqdm=Bar)
    check_idle(llm)
    (output,) = llm.generate(prompts[3], _params(8), use_tqdm=False)
    assert output.outputs[0].token_ids == f2_greedy[3].expected(8)


def test_mem_02_a_failing_step_costs_no_request(f2_dir, f2_greedy, make_llm):
    llm = make_llm(f2_dir)
    engine, entry = llm.llm_engine, f2_greedy[20]
    engine.add_request("a", entry.prompt, _params(16))
    for _ in range(5):
        engine.step()
    collect = engine.runner.collect
    engine.runner.collect = lambda _: (_ for _ in ()).throw(OSError("device lost"))
    with pytest.raises(OSError, match="device lost"):
        engine.step()
    engine.runner.collect = collect
    _, last = _step_all(engine)
    assert last["a"].outputs[0].token_ids == entry.expected(16)


@pytest.mark.parametrize(
    "policy", ["fcfs", pytest.param("priority", marks=pytest.mark.slow)]
)
def test_mem_03_soak_of_adds_and_aborts_leaks_nothing(
    f2_dir, make_llm, check_idle, policy
):
    llm = make_llm(
        f2_dir,
        block_size=8,
        num_gpu_blocks_override=24,
        max_model_len=96,
        scheduling_policy=policy,
    )
    engine, rng = llm.llm_engine, random.Random(policy)
    stems = [[rng.randrange(3, 320) for _ in range(40)] for _ in range(3)]
    live: set[str] = set()
    for number in range(600):
        for _ in range(rng.randrange(3)):
            name = f"r{number}-{rng.random()}"
            prompt = [*rng.choice(stems)[: rng.randrange(1, 40)], rng.randrange(320)]
            params = SamplingParams(
                temperature=rng.choice([0, 1]),
                max_tokens=rng.randrange(1, 30),
                stop_token_ids=[rng.randrange(320)],
                logprobs=rng.choice([None, 1]),
            )
            engine.add_request(name, prompt, params, priority=rng.randrange(3))
            live.add(name)
        if live and rng.random() < 0.4:
            engine.abort_request([rng.choice(sorted(live)), "unknown"])
        live -= {o.request_id for o in engine.step() if o.finished}
        if number % 50 == 0:
            engine.check_invariants()
    _step_all(engine)
    check_idle(llm)
    assert llm.stats.num_preemptions > 0
    assert llm.reset_prefix_cache()
    assert llm.stats.num_blocks_cached == 0


def test_mem_03_a_deleted_engine_frees_its_memory(tmp_path, make_llm):
    import gc

    import jax

    write_random_checkpoint(tmp_path)
    gc.collect()
    before = len(jax.live_arrays())
    for _ in range(2):
        llm = make_llm(tmp_path)
        llm.generate([[5, 6, 7]], _params(3), use_tqdm=False)
        assert len(jax.live_arrays()) > before
        del llm
        gc.collect()
        assert len(jax.live_arrays()) == before


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_mem_04_long_prompts_never_stop_a_running_decode(
    f2_dir, f2_greedy, make_llm, policy
):
    llm = make_llm(
        f2_dir,
        max_model_len=512,
        max_num_batched_tokens=16,
        scheduling_policy=policy,
    )
    engine, entry = llm.llm_engine, f2_greedy[7]
    engine.add_request("a", entry.prompt, _params(40), priority=5)
    while not engine.step():
        pass
    for i in range(4):
        engine.add_request(
            f"long{i}", [(9 * i + j) % 300 for j in range(400)], _params(3), priority=i
        )
    trace, last = _step_all(engine)
    a_steps = [i for i, ids in enumerate(trace) if "a" in ids]
    assert a_steps == list(range(a_steps[0], a_steps[0] + 39))
    assert last["a"].outputs[0].token_ids == entry.expected(40)
    firsts = [
        next(i for i, ids in enumerate(trace) if f"long{n}" in ids) for n in range(4)
    ]
    assert firsts == sorted(firsts)
