"""The text of an answer, streamed and whole, is what the tokenizer makes of its ids."""

import itertools

import numpy as np
import pytest
import transformers

from jengine import RequestOutputKind, SamplingParams, StructuredOutputsParams
from jengine.testing import (
    scripted,
    write_byte_tokenizer,
    write_markov_checkpoint,
    write_sentencepiece_tokenizer,
)

VOCAB = 320
BROKEN = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture(scope="module")
def make_speaker(tmp_path_factory, make_llm):
    """Makes an engine that follows a table, with a tokenizer of a kind."""

    def make(table, write=write_byte_tokenizer, change=None):
        folder = tmp_path_factory.mktemp("speaker")
        write(folder)
        if change is not None:
            hf = transformers.AutoTokenizer.from_pretrained(folder)
            change(hf)
            hf.save_pretrained(folder)
        write_markov_checkpoint(folder, table, eos_token_id=None)
        return make_llm(folder, skip_tokenizer_init=False)

    return make


@pytest.fixture(scope="module")
def anything(make_speaker):
    """Says whatever is asked of it, byte by byte; by itself, any id at random."""
    return make_speaker(dict.fromkeys(range(VOCAB), np.zeros(VOCAB, np.float32)))


def _stream(llm, prompt, **options):
    """The whole answer, its deltas, and what the streamed ids add up to."""
    params = SamplingParams(**({"max_tokens": 40, "ignore_eos": True} | options))
    whole = llm.generate(prompt, params, use_tqdm=False)[0].outputs[0]
    parts = [output.outputs[0] for output in llm.stream(prompt, params)]
    deltas = [part.text for part in parts]
    assert "".join(deltas) == whole.text
    assert [i for part in parts for i in part.token_ids] == whole.token_ids
    assert parts[-1].finish_reason == whole.finish_reason
    kind = RequestOutputKind.CUMULATIVE
    shown = [o.outputs[0].text for o in llm.stream(prompt, params, output_kind=kind)]
    assert all(b.startswith(a) for a, b in itertools.pairwise(shown))
    assert shown[-1] == whole.text
    return whole, deltas


def _say(llm, text, prompt="^", **options):
    """Stream a text that the engine has no choice but to say."""
    said = StructuredOutputsParams(choice=[text])
    return _stream(llm, prompt, structured_outputs=said, max_tokens=200, **options)


TEXTS = [
    'The "described" 😀 你好',
    "😀",
    "🦙 llama",
    "한국어 and 日本語",
    "👨‍👩‍👧‍👦, 🇫🇷 and é",
    "naïve Ω≈ç√∫",
    "a\N{BYTE ORDER MARK}b\u2028c\0d".replace("\0", "\x01"),
    "ends with 🦙",
    f"a real {BROKEN} stays",
]


@pytest.mark.parametrize("text", TEXTS)
def test_dtk_01_no_half_characters_are_streamed(anything, check_idle, text):
    hf = anything.get_tokenizer()
    whole, deltas = _say(anything, text)
    assert whole.token_ids == hf.encode(text, add_special_tokens=False)
    assert whole.text == text
    expected = text.count(BROKEN)
    assert sum(delta.count(BROKEN) for delta in deltas) == expected
    # A character appears with its last byte, not later, unless it may be half a one.
    if not expected:
        assert len([delta for delta in deltas if delta]) == len(text)
    check_idle(anything)


@pytest.mark.parametrize("cut", range(1, 12))
def test_dtk_01_a_limit_inside_a_character(anything, cut):
    text = "é你😀🦙"
    said = StructuredOutputsParams(choice=[text])
    whole, deltas = _stream(
        anything, "^", structured_outputs=said, max_tokens=cut, ignore_eos=False
    )
    data = text.encode()[:cut]
    assert bytes(whole.token_ids) == data
    assert whole.text == data.decode(errors="ignore")  # what is cut off is not shown
    assert BROKEN not in "".join(deltas)


def test_dtk_01_a_stop_string_after_and_inside_of_characters(anything):
    for stop, text in [("🦙", "😀"), ("好", "😀🦙 你"), ("\N{GRINNING FACE}", "")]:
        whole, _ = _say(anything, "😀🦙 你好!", stop=[stop])
        assert (whole.text, whole.stop_reason) == (text, stop)
        whole, _ = _say(
            anything, "😀🦙 你好!", stop=[stop], include_stop_str_in_output=True
        )
        assert whole.text == text + stop


def test_dtk_01_random_bytes_are_what_the_tokenizer_says(anything):
    hf = anything.get_tokenizer()
    for seed in range(3):
        whole, _ = _stream(anything, "^", seed=seed, max_tokens=60)
        known = [i for i in whole.token_ids if i < len(hf)]
        full = hf.decode(known, skip_special_tokens=True)
        assert full.startswith(whole.text)
        assert set(full[len(whole.text) :]) <= {BROKEN}  # what no byte completes


HALF = list("secret 😀".encode())[:-1]


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize("text", ["The", " The", "é", "\n"])
def test_dtk_02_the_prompt_never_comes_out(anything, missing, text):
    prompt = list("secret words 😀".encode())[:-missing]
    whole, _ = _say(anything, text, prompt={"prompt_token_ids": prompt})
    assert whole.text == text  # the broken character belongs to the prompt


def test_dtk_02_a_character_that_the_output_completes(make_speaker):
    rest = list("😀".encode())[-1]
    llm = make_speaker(scripted([*"😀".encode()[2:], *b"The n"], VOCAB))
    whole, _ = _stream(llm, {"prompt_token_ids": HALF}, temperature=0, max_tokens=6)
    assert whole.token_ids == [rest, *b"The n"]
    assert whole.text == "😀The n"


def test_dtk_02_byte_fallback(make_speaker):
    def ids(data):
        return [3 + byte for byte in data]  # the tokenizer's ids of bytes

    last, words = ids("😀".encode())[2:], [281, 283]  # ▁sat ▁on
    llm = make_speaker(scripted([*last, *words], VOCAB), write_sentencepiece_tokenizer)
    secret = llm.get_tokenizer().encode("hello")
    first = ids("😀".encode())[:3]
    prompt = {"prompt_token_ids": secret + first}
    whole, _ = _stream(llm, prompt, temperature=0, max_tokens=3)
    assert whole.token_ids == [last[-1], *words]
    assert whole.text == "😀 sat on"
    broken = {"prompt_token_ids": [*secret, *first[:1], 281]}
    whole, _ = _stream(llm, broken, temperature=0, max_tokens=1)
    assert whole.text == " on"


SAT, ON, WORLD, CAT, BARE_SAT = 281, 283, 288, 278, 303
SMILE = [3 + byte for byte in "😀".encode()]


@pytest.mark.parametrize(
    ("prompt", "output", "text"),
    [
        ("the cat", [SAT, ON, 259, *SMILE, WORLD], " sat on 😀 world"),
        ("the cat", [BARE_SAT, ON], "sat on"),
        ("", [SAT, ON], "sat on"),  # the prompt is BOS alone
        ("the cat", [SMILE[0], SMILE[1], WORLD], f"{BROKEN * 2} world"),
        ("the cat", [2, SAT], " sat"),  # a special token in between
    ],
    ids=["bytes", "no space", "bos", "invalid bytes", "special"],
)
def test_dtk_03_spaces_and_byte_fallback(make_speaker, prompt, output, text):
    start = {"": 1, "the cat": CAT}[prompt]
    table = scripted([start, *output], VOCAB)
    llm = make_speaker(table, write_sentencepiece_tokenizer)
    hf = llm.get_tokenizer()
    whole, _ = _stream(llm, prompt, temperature=0, max_tokens=len(output))
    assert whole.token_ids == output
    assert whole.text == text
    ids = hf.encode(prompt)
    before = hf.decode(ids, skip_special_tokens=True)
    after = hf.decode(ids + output, skip_special_tokens=True)
    assert after == before + text


def _add_tokens(hf):
    hf.add_tokens(["<tool>", "word"])
    hf.add_tokens(["<secret>"], special_tokens=True)


@pytest.fixture(scope="module")
def added(make_speaker):
    """Says special and added tokens among others: a<tool><bos><eos>B<secret>word!"""
    tool, word, secret = 259, 260, 261
    script = [*b"^a", tool, 256, 257, *b"B", secret, word, *b"!"]
    return make_speaker(scripted(script, VOCAB), change=_add_tokens)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("spaces", [True, False])
def test_dtk_04_special_and_added_tokens(added, skip, spaces, check_idle):
    hf = added.get_tokenizer()
    whole, _ = _stream(
        added,
        "^",
        temperature=0,
        max_tokens=8,
        skip_special_tokens=skip,
        spaces_between_special_tokens=spaces,
    )
    assert hf.convert_ids_to_tokens(whole.token_ids[1:3]) == ["<tool>", "<bos>"]
    assert whole.text == hf.decode(whole.token_ids, skip_special_tokens=skip)
    shown = "a<tool>Bword!" if skip else "a<tool><bos><eos>B<secret>word!"
    assert whole.text == shown
    check_idle(added)


def test_dtk_04_stops_see_what_is_shown(added):
    def say(**options):
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, **options)
        return added.generate("^", params, use_tqdm=False)[0].outputs[0]

    assert say(stop=["<eos>"]).text == "a<tool>Bword!"  # skipped, so never there
    done = say(stop=["<eos>"], skip_special_tokens=False)
    assert (done.text, done.stop_reason) == ("a<tool><bos>", "<eos>")
    assert say(stop=["ol>Bw"]).text == "a<to"  # across what is skipped
    assert say(stop_token_ids=[261]).text == "a<tool>B"
    assert say(detokenize=False).text == ""


def test_dtk_04_the_end_token_shows_only_where_asked(make_speaker):
    llm = make_speaker(scripted([*b"^ab", 257, *b"c"], VOCAB))

    def say(**options):
        params = SamplingParams(temperature=0, max_tokens=5, **options)
        return llm.generate("^", params, use_tqdm=False)[0].outputs[0]

    for skip in (True, False):
        done = say(skip_special_tokens=skip)
        assert (done.text, done.finish_reason) == ("ab", "stop")
        assert done.token_ids == [*b"ab", 257]
    shown = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    assert say(**shown).text == "ab<eos>"


@pytest.mark.parametrize("flat", [False, True])
def test_lpr_tokens_that_are_parts_of_characters_add_up(anything, flat):
    text = "é a😀b 你好🦙한"
    said = StructuredOutputsParams(choice=[text])
    params = SamplingParams(
        structured_outputs=said,
        max_tokens=200,
        logprobs=3,
        prompt_logprobs=0,
        flat_logprobs=flat,
    )
    (output,) = anything.generate("^" + text, params, use_tqdm=False)
    (done,) = output.outputs
    assert done.text == text
    for ids, listed in (
        (done.token_ids, done.logprobs),
        (output.prompt_token_ids[1:], output.prompt_logprobs[1:]),
    ):
        pairs = zip(ids, listed, strict=True)
        assert "".join(entry[i].decoded_token for i, entry in pairs) == text
    shown = [one.decoded_token for entry in done.logprobs for one in entry.values()]
    assert not any(BROKEN in piece for piece in shown)
