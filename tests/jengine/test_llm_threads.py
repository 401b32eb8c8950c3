"""One `LLM` that several threads use at a time."""

import concurrent.futures

import pytest

from jengine import SamplingParams

LONG = 120  # seconds until a wait that never ends is called a failure
NUM_TOKENS = 20
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 2


@pytest.fixture(scope="module")
def llm(alphabet_llm):
    return alphabet_llm


@pytest.fixture(autouse=True)
def nothing_is_left(llm, check_idle):
    yield
    check_idle(llm)


def run_threads(*works):
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        calls = [pool.submit(work) for work in works]
        return [call.result(LONG) for call in calls]


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def after(letter):
    start = LETTERS.index(letter) + 1
    return LETTERS[start : start + NUM_TOKENS]


def test_every_kind_of_call_on_a_thread_of_its_own(llm):
    messages = [{"role": "user", "content": "hi"}]

    def generate(prompts):
        return [
            texts(llm.generate([*prompts], GREEDY, use_tqdm=False)) for _ in range(6)
        ]

    def chat():
        return [texts(llm.chat(messages, GREEDY, use_tqdm=False)) for _ in range(6)]

    def stream(make):
        return ["".join(texts(make())) for _ in range(3)]

    def reset():
        return [llm.reset_prefix_cache() for _ in range(20)]

    found = run_threads(
        lambda: generate("abc"),
        lambda: generate("xyz"),
        chat,
        lambda: stream(lambda: llm.stream("k", GREEDY)),
        lambda: stream(lambda: llm.stream_chat(messages, GREEDY)),
        reset,
    )
    assert found[:2] == [[[after(a) for a in word]] * 6 for word in ("abc", "xyz")]
    assert found[2] == [[LETTERS[:20]]] * 6
    assert found[3:5] == [[after("k")] * 3, [LETTERS[:20]] * 3]
    assert set(found[5]) <= {True, False}


def test_an_error_before_anything_runs_leaves_the_engine_to_others(llm):
    def fail():
        for _ in range(20):
            with pytest.raises(ZeroDivisionError):
                llm.generate("a", GREEDY, use_tqdm=lambda **_: 1 // 0)

    def work():
        return [texts(llm.generate("a", GREEDY, use_tqdm=False)) for _ in range(6)]

    assert run_threads(fail, work)[1] == [[after("a")]] * 6


def test_a_tokenizer_is_used_by_one_thread_at_a_time(llm, monkeypatch):
    tokenizer, inside, most = type(llm.llm_engine.tokenizer), [], []
    encode = tokenizer.encode

    def note_and_encode(self, text, **options):
        inside.append(text)
        ids = encode(self, text * 500, **options) and encode(self, text, **options)
        most.append(len(inside))
        inside.remove(text)
        return ids

    monkeypatch.setattr(tokenizer, "encode", note_and_encode)
    messages = [{"role": "user", "content": "hi"}]
    short = SamplingParams(temperature=0, max_tokens=1)
    calls = (
        lambda: llm.generate("a", short, use_tqdm=False),
        lambda: llm.chat(messages, short, use_tqdm=False),
        lambda: list(llm.stream("b", short)),
        lambda: list(llm.stream_chat(messages, short)),
    )
    run_threads(*(lambda call=call: [call() for _ in range(5)] for call in calls))
    assert set(most) == {1}
