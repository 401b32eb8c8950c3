"""Where an output ends, on scripted models whose text is known."""

import pytest

from jengine import SamplingParams
from jengine.testing import (
    scripted,
    uniform,
    write_byte_tokenizer,
    write_markov_checkpoint,
)

VOCAB = 320


@pytest.fixture(scope="module")
def says(tmp_path_factory, make_llm):
    """Makes an engine that says a text of distinct bytes after the prompt "^"."""
    import transformers

    def make(text, **options):
        folder = tmp_path_factory.mktemp("says")
        write_byte_tokenizer(folder)
        hf = transformers.AutoTokenizer.from_pretrained(folder)
        encode = lambda t: hf.encode(t, add_special_tokens=False)  # noqa: E731
        script = [*encode("^"), *encode(text), hf.eos_token_id]
        write_markov_checkpoint(
            folder,
            scripted(script, VOCAB),
            vocab_size=VOCAB,
            eos_token_id=hf.eos_token_id,
        )
        return make_llm(folder, skip_tokenizer_init=False, **options)

    return make


TEXT = 'The "d\N{LATIN SMALL LETTER E WITH ACUTE}rib!'


@pytest.fixture(scope="module")
def speaker(says):
    return says(TEXT)


def _say(llm, prompt="^", **options):
    params = SamplingParams(temperature=0, **({"max_tokens": 40} | options))
    (output,) = llm.generate({"prompt": prompt}, params, use_tqdm=False)
    return output.outputs[0]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    "stop",
    [
        ["rib"],
        ['"d'],
        ["ib", "ri"],
        [" "],
        ["zzz"],
        ["\N{LATIN SMALL LETTER E WITH ACUTE}"],
        ["h", "e"],
        ["T"],
        ["!"],
        "ri",
    ],
)
def test_stp_01_stop_string_across_and_inside_tokens(speaker, stop, include):
    done = _say(speaker, stop=stop, include_stop_str_in_output=include)
    stops = [stop] if isinstance(stop, str) else stop
    ends = [(TEXT.find(s) + len(s), i, s) for i, s in enumerate(stops) if s in TEXT]
    if not ends:
        assert (done.text, done.stop_reason, done.finish_reason) == (TEXT, None, "stop")
        return
    end, _, found = min(ends)
    assert done.text == (TEXT[:end] if include else TEXT[: end - len(found)])
    assert (done.finish_reason, done.stop_reason) == ("stop", found)
    assert len(done.token_ids) == len(TEXT[:end].encode())


def test_stp_01_the_prompt_is_never_searched(speaker):
    done = _say(speaker, prompt="rib Th^", stop=["rib T", "^T"])
    assert (done.text, done.stop_reason) == (TEXT, None)
    (output,) = speaker.generate(
        "q^",
        SamplingParams(temperature=0, stop=["q^T", "ri"], max_tokens=40),
        use_tqdm=False,
    )
    assert output.outputs[0].stop_reason == "ri"


@pytest.mark.parametrize("kind", ["CUMULATIVE", "DELTA"])
@pytest.mark.parametrize("stop", [["rib"], ["ri!"], []])
def test_stp_01_streaming_never_shows_a_part_of_the_stop(speaker, kind, stop):
    from jengine import RequestOutputKind

    params = SamplingParams(
        temperature=0, max_tokens=40, stop=stop, output_kind=RequestOutputKind[kind]
    )
    speaker.llm_engine.add_request("s", "^", params)
    shown, whole = "", TEXT[: TEXT.find("rib")] if stop == ["rib"] else TEXT
    while speaker.llm_engine.has_unfinished_requests():
        for output in speaker.llm_engine.step():
            text = output.outputs[0].text
            if kind == "CUMULATIVE":
                assert text.startswith(shown)
                shown = text
            else:
                shown += text
            assert whole.startswith(shown)
    assert shown == whole


@pytest.fixture(scope="module")
def eos_models(tmp_path_factory, make_llm):
    """Engines over 30 -> 31 -> 7 -> 32 -> 2 -> 33 -> ..., by their EOS settings."""
    made = {}

    def get(config_eos, generation_eos):
        key = (str(config_eos), str(generation_eos))
        if key not in made:
            generation = None
            if generation_eos != "missing":
                generation = {"eos_token_id": generation_eos}
            made[key] = make_llm(
                write_markov_checkpoint(
                    tmp_path_factory.mktemp("eos"),
                    scripted([30, 31, 7, 32, 2, *range(33, 60)], VOCAB),
                    vocab_size=VOCAB,
                    eos_token_id=config_eos,
                    generation_config=generation,
                )
            )
        return made[key]

    return get


def _end(llm, prompt, **options):
    params = SamplingParams(temperature=0, **({"max_tokens": 8} | options))
    (output,) = llm.generate(prompt, params, use_tqdm=False)
    done = output.outputs[0]
    return done.token_ids, done.finish_reason, done.stop_reason


@pytest.mark.parametrize(
    ("config_eos", "generation_eos", "ids", "reason"),
    [
        (2, [2, 7], [31, 7], 7),
        (2, "missing", [31, 7, 32, 2], None),
        ([2, 7], "missing", [31, 7], 7),
        (2, None, [31, 7, 32, 2], None),
        (2, 7, [31, 7], None),
        (7, "missing", [31, 7], None),
    ],
)
def test_stp_02_eos_as_int_list_null_or_missing(
    eos_models, config_eos, generation_eos, ids, reason
):
    llm = eos_models(config_eos, generation_eos)
    assert _end(llm, [30]) == (ids, "stop", reason)


def test_stp_02_ignore_eos(eos_models):
    llm = eos_models(2, [2, 7])
    ids = [31, 7, 32, 2, 33, 34, 35, 36]
    assert _end(llm, [30], ignore_eos=True) == (ids, "length", None)
    own = _end(llm, [30], ignore_eos=True, stop_token_ids=[2])
    assert own == (ids[:4], "stop", 2)
    also_eos = _end(llm, [30], ignore_eos=True, stop_token_ids=[7])
    assert also_eos == (ids[:2], "stop", 7)
    assert _end(llm, [2, 7, 33], max_tokens=2) == ([34, 35], "length", None)


def test_stp_02_eos_on_the_last_allowed_token_is_a_stop(eos_models):
    llm = eos_models(2, "missing")
    assert _end(llm, [30], max_tokens=4) == ([31, 7, 32, 2], "stop", None)
    assert _end(llm, [30], max_tokens=3) == ([31, 7, 32], "length", None)


@pytest.fixture(scope="module")
def eager_eos(tmp_path_factory, make_llm):
    """EOS 2 is always best, then 7, then the chain 30, 31, ..."""
    table = scripted(list(range(30, 60)), VOCAB, strength=10.0)
    for row in table.values():
        row[2], row[7] = 30.0, 20.0
    return make_llm(
        write_markov_checkpoint(
            tmp_path_factory.mktemp("eager"),
            table,
            vocab_size=VOCAB,
            eos_token_id=2,
            generation_config={"eos_token_id": [2, 7]},
        )
    )


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3, 7, 8])
def test_stp_03_min_tokens_gates_every_end_token(eager_eos, min_tokens, ahead):
    neighbours = [[40 + i] for i in range(ahead)]
    params = [SamplingParams(temperature=0, max_tokens=8, min_tokens=min_tokens)]
    params += [SamplingParams(temperature=0, max_tokens=3)] * ahead
    first, *others = eager_eos.generate([[30], *neighbours], params, use_tqdm=False)
    chain = list(range(31, 31 + min_tokens))
    done = first.outputs[0]
    if min_tokens == 8:
        assert (done.token_ids, done.finish_reason) == (chain, "length")
    else:
        assert (done.token_ids, done.finish_reason) == ([*chain, 2], "stop")
    for other in others:
        assert other.outputs[0].token_ids == [2]


@pytest.mark.parametrize("temperature", [0, 1])
def test_stp_03_min_tokens_with_stop_ids_and_ignore_eos(eager_eos, temperature):
    params = SamplingParams(
        temperature=temperature,
        seed=1,
        max_tokens=6,
        min_tokens=2,
        stop_token_ids=[33],
        ignore_eos=True,
    )
    (output,) = eager_eos.generate([31], params, use_tqdm=False)
    # 33 may not come as an early end, and neither may EOS, though it is ignored.
    ids = output.outputs[0].token_ids
    assert not {2, 7, 33} & set(ids[:2])


def test_stp_03_min_tokens_delays_stop_strings(speaker):
    done = _say(speaker, stop=["e"], min_tokens=4)
    assert (done.text, done.stop_reason) == (TEXT, None)
    done = _say(speaker, stop=["h", "i"], min_tokens=4)
    assert (done.text, done.stop_reason) == (TEXT[: TEXT.find("i")], "i")


def test_stp_03_min_tokens_longer_than_the_context_ends_by_length(says):
    llm = says("abcdefghijklmnopqrstuvwxyz0123456789", max_model_len=12)
    done = _say(llm, max_tokens=None, min_tokens=30)
    assert (done.text, done.finish_reason) == ("abcdefghijk", "length")


@pytest.mark.parametrize("stop", [[], None, "x" * 10_000, TEXT + "!", ["q"] * 50])
def test_stp_04_odd_stops_that_never_match(speaker, stop):
    done = _say(speaker, stop=stop)
    assert (done.text, done.finish_reason, done.stop_reason) == (TEXT, "stop", None)


@pytest.mark.parametrize("stop", ["", [""], ["", "x"], [None], [3], 3])
def test_stp_04_stops_that_are_no_strings_are_refused(stop):
    with pytest.raises(ValueError, match="stop"):
        SamplingParams(stop=stop)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("char", "shown"), [("T", 0), ("r", 7), ("!", 10)])
def test_stp_05_stop_token_ids_and_the_text(speaker, char, shown, include):
    stop_id = speaker.get_tokenizer().encode(char, add_special_tokens=False)[-1]
    done = _say(speaker, stop_token_ids=[stop_id], include_stop_str_in_output=include)
    assert done.token_ids[-1] == stop_id
    assert (done.finish_reason, done.stop_reason) == ("stop", stop_id)
    assert done.text == TEXT[: shown + include]


def test_stp_05_stop_at_half_a_character_shows_none_of_it(speaker):
    first_byte = speaker.get_tokenizer().encode(TEXT[6], add_special_tokens=False)[0]
    done = _say(speaker, stop_token_ids=[first_byte], include_stop_str_in_output=True)
    assert (done.text, done.token_ids[-1]) == (TEXT[:6], first_byte)
    done = _say(speaker, max_tokens=7)
    assert (done.text, done.finish_reason) == (TEXT[:6], "length")


@pytest.mark.parametrize("bad", [VOCAB, -1, 2.5, "7", True])
def test_stp_05_ids_that_do_not_exist_are_refused(speaker, bad):
    with pytest.raises(ValueError, match="stop_token_ids"):
        _say(speaker, stop_token_ids=[bad])
    assert _say(speaker).text == TEXT


def test_length_limit_releases_text_held_for_a_stop(speaker):
    done = _say(speaker, stop=['The "dX'], max_tokens=6)
    assert (done.text, done.finish_reason) == (TEXT[:6], "length")


def test_uniform_model_stops_by_any_seed(tmp_path_factory, make_llm):
    folder = write_markov_checkpoint(
        tmp_path_factory.mktemp("uniform"),
        uniform([5, 6, 7], VOCAB, after=[1]),
        vocab_size=VOCAB,
        eos_token_id=7,
    )
    llm = make_llm(folder)
    params = [SamplingParams(seed=s, max_tokens=50) for s in range(30)]
    for output in llm.generate([[1]] * 30, params, use_tqdm=False):
        done = output.outputs[0]
        assert done.finish_reason == ("stop" if done.token_ids[-1] == 7 else "length")
        assert 7 not in done.token_ids[:-1]
