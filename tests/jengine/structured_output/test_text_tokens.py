"""Added tokens that are text, in vocabularies of several kinds."""

import llguidance
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models

from jengine.structured_output.guidance import GuidanceGrammars
from jengine.structured_output.text_tokens import with_text_tokens
from jengine.structured_outputs import StructuredOutputsParams
from jengine.testing import write_byte_tokenizer
from jengine.text.tokenizer import load_tokenizer, wrap_tokenizer

VOCAB, EOS = 320, 257
ADDED = ("<tool>", "<not this>", "[TOOL]")


@pytest.fixture
def backend(tmp_path):
    write_byte_tokenizer(tmp_path)
    made = load_tokenizer(tmp_path).backend
    made.add_tokens([AddedToken(one, special=False) for one in ADDED])
    made.add_special_tokens(["<|end|>"])
    return made


def test_tokens_in_angle_brackets_become_text_under_the_same_ids(backend):
    after, moved = with_text_tokens(backend.to_str())
    given = (backend.to_str(), after)
    assert moved == {"<tool>"}
    loaded = Tokenizer.from_str(after)
    assert loaded.get_vocab() == backend.get_vocab()
    seen = [
        [(one.decode_bytes([i]), one.is_special_token(i)) for i in range(263)]
        for one in (llguidance.LLTokenizer(text, eos_token=257) for text in given)
    ]
    changed = [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]]
    assert changed == [((b"<tool>", True), (b"<tool>", False))]


def test_others_are_left_alone(tmp_path):
    write_byte_tokenizer(tmp_path)
    plain = load_tokenizer(tmp_path).backend.to_str()
    assert with_text_tokens(plain) == (plain, frozenset())
    unigram = Tokenizer(models.Unigram([("a", 0.0)], 0, False))
    unigram.add_tokens([AddedToken("<tool>", special=False)])
    assert with_text_tokens(unigram.to_str()) == (unigram.to_str(), frozenset())


@pytest.fixture(scope="module", params=[False, True], ids=["text", "special"])
def tool_grammars(request, tmp_path_factory):
    """Grammars of a tokenizer whose ids 259 and 260 are a model's marks of a call."""
    folder = tmp_path_factory.mktemp("tools")
    write_byte_tokenizer(folder)
    loaded = load_tokenizer(folder)
    marks = ("<tool_call>", "</tool_call>")
    loaded.hf.add_tokens(
        [AddedToken(one, special=request.param) for one in marks],
        special_tokens=request.param,
    )
    return request.param, GuidanceGrammars(
        wrap_tokenizer(loaded.hf), vocab_size=VOCAB, eos_token_ids=[EOS]
    )


def takes_ids(grammars, token_ids, **asked):
    """Whether the grammar takes these ids, and may end there."""
    compiled = grammars.compile(StructuredOutputsParams(**asked))
    constraint = grammars.constraint(compiled, ())
    for index, token_id in enumerate(token_ids):
        if token_id not in allowed(constraint):
            return False
        if constraint.advance(token_id):
            return index == len(token_ids) - 1
    return EOS in allowed(constraint)


def allowed(constraint):
    mask = np.full(-(-VOCAB // 32), -1, np.int32)
    constraint.restrict(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.nonzero(bits)[0].tolist()


@pytest.mark.parametrize(
    "asked",
    [
        {"regex": "<tool_call>1</tool_call>"},
        {"choice": ["<tool_call>1</tool_call>", "no"]},
        {"grammar": 'root ::= "<tool_call>" [0-9] "</tool_call>"'},
    ],
    ids=str,
)
def test_a_text_that_an_added_token_may_spell(tool_grammars, asked):
    is_special, grammars = tool_grammars
    assert takes_ids(grammars, list(b"<tool_call>1</tool_call>"), **asked)
    marked = [259, *b"1", 260]
    assert takes_ids(grammars, marked, **asked) is not is_special


def test_a_grammar_that_names_a_token(tool_grammars):
    _, grammars = tool_grammars
    asked = {"grammar": "start: <tool_call> /1/"}
    assert takes_ids(grammars, [259, *b"1"], **asked)
    assert not takes_ids(grammars, list(b"<tool_call>1"), **asked)


def test_a_structural_tag_of_added_tokens(tool_grammars):
    is_special, grammars = tool_grammars
    one = {"begin": "<tool_call>", "schema": {"const": 1}, "end": "</tool_call>"}
    tag = {"structures": [one], "triggers": ["<tool_call>"]}

    def takes(*token_ids):
        return takes_ids(grammars, token_ids, structural_tag=tag)

    assert takes(*b"so ", 259, *b"1", 260, *b" ok")
    assert takes(259, *b"1</tool_call>")
    assert takes(*b"<tool_call>1</tool_call>")
    assert not takes(259, *b"2", 260)
    assert not takes(259)
    # Where the token is no text, only the token itself starts a tag.
    assert takes(*b"<tool_call>2") is is_special
