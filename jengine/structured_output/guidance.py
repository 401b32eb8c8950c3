"""Grammars by llguidance: compiled to matchers over bytes, so tokens may split text."""

import functools
import json
import logging
from collections.abc import Mapping, Sequence

import llguidance
import numpy as np
from llguidance.numpy import fill_next_token_bitmask

from jengine.errors import UnsupportedError
from jengine.structured_output import schema_rewrite
from jengine.structured_output.constraint import ConstraintError, GrammarError
from jengine.structured_output.regex_rewrite import narrowed
from jengine.structured_output.schema_checks import refuse_unkept
from jengine.structured_output.schema_ends import without_endless
from jengine.structured_output.structural_tags import read_tags, tags_lark
from jengine.structured_output.text_tokens import with_text_tokens
from jengine.structured_outputs import StructuredOutputsParams
from jengine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

# One space, or a new line and its indentation. Unbounded white space would let a model
# that likes it go on for ever.
_WHITESPACE = r"( |\n[ \t]{0,16})"

# A schema of 2000 properties needs 8000 items; llguidance's own limit is 2000.
_LIMITS = llguidance.LLParserLimits(max_items_in_row=20_000)

_PLACE = "while processing json-schema:///"


class GuidanceGrammars:
    """Compiles the grammars of one tokenizer."""

    def __init__(
        self, tokenizer: Tokenizer, *, vocab_size: int, eos_token_ids: Sequence[int]
    ) -> None:
        """Read the tokenizer's bytes, which takes a moment.

        Args:
          tokenizer: of the model.
          vocab_size: number of logits; ids past the tokenizer's are never allowed.
          eos_token_ids: ids that end an output.

        Raises:
          UnsupportedError: a tokenizer written in Python, one that changes its text
            afterwards, or one without an end-of-sequence token.
        """
        if tokenizer.backend is None:
            raise UnsupportedError(
                "structured outputs need a fast tokenizer whose text is not changed"
                " afterwards; this one is in Python, or cleans up spaces"
            )
        if not eos_token_ids:
            raise UnsupportedError(
                "structured outputs need an end-of-sequence token; the checkpoint names"
                " none"
            )
        self._vocab_size = max(vocab_size, tokenizer.max_token_id + 1)
        self._eos_token_ids = tuple(eos_token_ids)
        self._eos_without_text = _without_text(eos_token_ids, tokenizer)
        named = tokenizer.backend.to_str()
        text, moved = with_text_tokens(named)
        self._tokenizer = self._load(text)
        # For grammars that name a token which is text to all others.
        self._load_named = functools.cache(lambda: self._load(named))
        self._added_tokens = _added_tokens(tokenizer)
        self._special_tokens = {
            name: token_id
            for name, token_id in self._added_tokens.items()
            if name not in moved
        }
        self._has_text_tokens = bool(moved)

    def compile(self, params: StructuredOutputsParams) -> llguidance.LLMatcher:
        """Return a matcher at its start; copy it for each request.

        Raises:
          GrammarError: it cannot be compiled, or asks for what is not supported.
        """
        try:
            source = _source(params, self._special_tokens)
            if _may_force_for_ever(params) or self._spells_added_token(source):
                source = _unforced(source)
        except RecursionError as error:
            raise GrammarError("it is nested too deeply") from error
        matcher = _matcher(self._tokenizer, source)
        names_tokens = self._has_text_tokens and params.kind == "grammar"
        if matcher.is_error() and names_tokens:
            matcher = _matcher(self._load_named(), source)
        if matcher.is_error():
            raise GrammarError(_reason(matcher))
        start = matcher.deep_copy()
        start.compute_bitmask()
        if start.is_error():
            raise GrammarError(_reason(start))
        return matcher

    def _load(self, tokenizer: str) -> llguidance.LLTokenizer:
        return llguidance.LLTokenizer(
            tokenizer, n_vocab=self._vocab_size, eos_token=self._eos_without_text
        )

    def _spells_added_token(self, source: str) -> bool:
        plain = source.replace("\\", "")  # escapes, as of `|` in a pattern
        return any(token in plain for token in self._added_tokens)

    def constraint(
        self, compiled: llguidance.LLMatcher, stop_token_ids: Sequence[int]
    ) -> "GrammarConstraint":
        """Return the state of one request.

        Args:
          compiled: what `compile` returned; it is copied.
          stop_token_ids: the request's own ids that end it.
        """
        ends = frozenset((*stop_token_ids, *self._eos_token_ids))
        return GrammarConstraint(compiled.deep_copy(), ends, self._vocab_size)


class GrammarConstraint:
    """Follows one request's text through a grammar.

    Every id that ends an output is allowed where the grammar could end, and nowhere
    else, unless nothing else could follow: then it is text. Where nothing at all could
    follow, `advance` says that the text is complete.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        end_token_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        """Start before the first token; `matcher` belongs to this object."""
        self._matcher = matcher
        self._end_token_ids = end_token_ids
        self._words = np.empty((1, -(-vocab_size // 32)), np.int32)
        self._end_words = np.zeros_like(self._words[0])
        for token_id in end_token_ids:
            bit = np.left_shift(np.int32(1), token_id % 32, dtype=np.int32)
            self._end_words[token_id // 32] |= bit

    def restrict(self, mask: np.ndarray) -> None:
        """Clear what the grammar does not allow next."""
        if not self._find_allowed():
            mask[:] = 0  # nothing can be drawn, which ends this request alone
            return
        words, ends = self._words[0, : len(mask)], self._end_words[: len(mask)]
        if self._matcher.is_accepting():
            mask &= words | ends
        elif (mask & words & ~ends).any():
            mask &= words & ~ends
        else:
            mask &= words

    def advance(self, token_id: int) -> bool:
        """Take in the next token; return whether it ends the text.

        An id that may end it, and may be a part of it too, is taken as a part: whether
        it ends the request is the scheduler's to say, who knows of `ignore_eos`.
        """
        may_end = token_id in self._end_token_ids and self._matcher.is_accepting()
        if may_end and not self._matcher.validate_tokens([token_id]):
            return True
        if not self._matcher.consume_token(token_id):
            raise ConstraintError(_reason(self._matcher))
        return self._matcher.is_stopped()

    def restart(self, token_ids: Sequence[int]) -> None:
        """Start over, with these tokens drawn; what breaks is left without a way on."""
        self._matcher.reset()
        try:
            for token_id in token_ids:
                self.advance(token_id)
        except ConstraintError as error:
            logger.error("a grammar does not allow what was drawn: %s", error)

    def _find_allowed(self) -> bool:
        """Find what the grammar allows next; return whether that could be found."""
        try:
            fill_next_token_bitmask(self._matcher, self._words)
        except Exception:
            logger.exception("a grammar cannot go on")
            return False
        if self._matcher.is_error():  # too complex a state
            logger.error("a grammar cannot go on: %s", _reason(self._matcher))
            return False
        return True


def _matcher(tokenizer: llguidance.LLTokenizer, source: str) -> llguidance.LLMatcher:
    return llguidance.LLMatcher(tokenizer, source, log_level=0, limits=_LIMITS)


def _added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return ids of the texts that llguidance takes for names of tokens."""
    if tokenizer.backend is None:
        return {}
    return {
        token.content: token_id
        for token_id, token in tokenizer.backend.get_added_tokens_decoder().items()
        if token.content
        and (token.special or token.content[0] + token.content[-1] == "<>")
    }


def _without_text(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return the ids that are never a part of a text; all of them if none is."""
    special = [one for one in token_ids if one in tokenizer.special_token_ids]
    return special or list(token_ids)


def _source(params: StructuredOutputsParams, special_tokens: Mapping[str, int]) -> str:
    """Return llguidance's own form of a grammar."""
    match params.kind:
        case "json":
            return _json_source(params, json.loads(str(params.json)))
        case "json_object":
            return _json_source(params, {"type": "object"})
        case "structural_tag":
            return _tag_source(params, special_tokens)
        case "choice":
            # One symbol, not a rule: a rule has at most a few thousand alternatives.
            texts = params.choice or ()
            listed = " | ".join(json.dumps(one, ensure_ascii=False) for one in texts)
            return llguidance.grammar_from("lark", f"start: TEXT\nTEXT: {listed}")
    text = str(getattr(params, params.kind))
    kind = "grammar" if "::=" in text else "lark"  # as every rule of GBNF has
    if params.kind == "regex":
        kind, text = "regex", narrowed(text)
    try:
        return llguidance.grammar_from(kind, text)
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _may_force_for_ever(params: StructuredOutputsParams) -> bool:
    """Tell whether a text that must follow may have no end.

    llguidance takes the longest match of each symbol: in `a "b"` where `a: /b+/`, `a`
    takes every b, and one more b always has to follow. It never returns from looking
    for the end of that. Symbols of one's own are in grammars, in the patterns between
    the values of JSON, and nowhere else.
    """
    return (
        params.kind == "grammar"
        or params.whitespace_pattern is not None
        or "x-guidance" in str(params.json or params.structural_tag)
    )


def _unforced(source: str) -> str:
    """Return a grammar whose text may be spelled by any tokens.

    Where one text only can follow, llguidance asks for the tokenizer's own tokens of
    it; for a text such as "<|im_end|>" that is the special token, which is no text.
    """
    if source.lstrip().startswith("{"):
        (grammar,) = json.loads(source)["grammars"]
        schema = json.dumps(grammar.get("json_schema"), ensure_ascii=False)
        source = grammar.get("lark_grammar") or f"start: %json {schema}"
    # Last, for the last of several wins.
    return f'{source}\n%llguidance {{"no_forcing": true}}\n'


def _json_source(params: StructuredOutputsParams, schema: object) -> str:
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(_prepared(params, schema), ensure_ascii=False)
        )
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _prepared(params: StructuredOutputsParams, schema: object) -> dict[str, object]:
    """Return a schema that llguidance keeps to, with its options inside."""
    if schema is False:
        raise GrammarError("no text follows the schema false")
    schema = without_endless({} if schema is True else schema)
    if params.disable_additional_properties:
        schema = schema_rewrite.closed(schema)
    refuse_unkept(schema)
    schema = schema_rewrite.inside_bounds(schema)
    if not isinstance(schema, dict):
        raise GrammarError("a schema is a JSON object, true or false")
    options: dict[str, object] = {"whitespace_flexible": False}
    if not params.disable_any_whitespace:
        pattern = params.whitespace_pattern or _WHITESPACE
        options = {"whitespace_flexible": True, "whitespace_pattern": pattern}
    own = schema.get("x-guidance")
    asked: dict[str, object] = own if isinstance(own, dict) else {}
    return {
        **schema,
        "x-guidance": schema_rewrite.escapes_for(schema) | asked | options,
    }


def _tag_source(
    params: StructuredOutputsParams, special_tokens: Mapping[str, int]
) -> str:
    tags = read_tags(json.loads(str(params.structural_tag)))
    return tags_lark(tags, lambda one: _prepared(params, one), special_tokens)


def _reason(matcher: llguidance.LLMatcher) -> str:
    """Return what was found wrong, and where if llguidance says so."""
    first, *more = matcher.get_error().strip().splitlines() or ["it cannot be compiled"]
    if first == "NoExtensionBias":
        return "no text follows it"
    wrong = [line for line in more if line.startswith("error: ")]  # in a pattern
    places = [line.partition(_PLACE)[2] for line in more if _PLACE in line]
    return " ".join([first, *wrong, *(f"(at {place})" for place in places)])
