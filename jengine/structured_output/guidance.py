"""Grammars by llguidance: compiled to matchers over bytes, so tokens may split text."""

import json
import logging
from collections.abc import Sequence

import llguidance
import numpy as np
from llguidance.numpy import fill_next_token_bitmask

from jengine.errors import UnsupportedError
from jengine.structured_output import schema_rewrite
from jengine.structured_output.constraint import ConstraintError, GrammarError
from jengine.structured_output.regex_rewrite import narrowed
from jengine.structured_output.schema_checks import refuse_unkept
from jengine.structured_output.schema_ends import without_endless
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
        self._tokenizer = llguidance.LLTokenizer(
            tokenizer.backend.to_str(),
            n_vocab=self._vocab_size,
            eos_token=list(eos_token_ids),
        )
        self._eos_token_ids = tuple(eos_token_ids)
        self._special_tokens = frozenset(
            tokenizer.convert(token_id) for token_id in tokenizer.special_token_ids
        )

    def compile(self, params: StructuredOutputsParams) -> llguidance.LLMatcher:
        """Return a matcher at its start; copy it for each request.

        Raises:
          GrammarError: it cannot be compiled, or asks for what is not supported.
        """
        try:
            source = _source(params, self._special_tokens)
            if self._spells_special_token(source):
                source = _unforced(source)
        except RecursionError as error:
            raise GrammarError("it is nested too deeply") from error
        matcher = llguidance.LLMatcher(
            self._tokenizer, source, log_level=0, limits=_LIMITS
        )
        if matcher.is_error():
            raise GrammarError(_reason(matcher))
        start = matcher.deep_copy()
        start.compute_bitmask()
        if start.is_error():
            raise GrammarError(_reason(start))
        return matcher

    def _spells_special_token(self, source: str) -> bool:
        plain = source.replace("\\", "")  # escapes, as of `|` in a pattern
        return any(token in plain for token in self._special_tokens)

    def constraint(
        self, compiled: llguidance.LLMatcher, stop_token_ids: Sequence[int]
    ) -> "GrammarConstraint":
        """Return the state of one request.

        Args:
          compiled: what `compile` returned; it is copied.
          stop_token_ids: the request's own ids that end it.
        """
        own = tuple(i for i in stop_token_ids if i not in self._eos_token_ids)
        ends = frozenset((*own, *self._eos_token_ids))
        return GrammarConstraint(compiled.deep_copy(), own, ends, self._vocab_size)


class GrammarConstraint:
    """Follows one request's text through a grammar.

    Every id that ends an output is allowed where the grammar could end, and nowhere
    else. Where nothing else could follow, `advance` says that the text is complete.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        stop_token_ids: Sequence[int],
        end_token_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        """Start before the first token; `matcher` belongs to this object."""
        self._matcher = matcher
        self._stop_token_ids = stop_token_ids
        self._end_token_ids = end_token_ids
        self._words = np.empty((1, -(-vocab_size // 32)), np.int32)

    def restrict(self, mask: np.ndarray) -> None:
        """Clear what the grammar does not allow next."""
        fill_next_token_bitmask(self._matcher, self._words)
        if self._matcher.is_error():  # too complex a state: nothing can be drawn
            logger.error("a grammar cannot go on: %s", _reason(self._matcher))
            mask[:] = 0
            return
        mask &= self._words[0, : len(mask)]
        may_end = self._matcher.is_accepting()
        for token_id in self._stop_token_ids:
            bit = np.left_shift(np.int32(1), token_id % 32, dtype=np.int32)
            if may_end:
                mask[token_id // 32] |= bit
            else:
                mask[token_id // 32] &= ~bit

    def advance(self, token_id: int) -> bool:
        """Take in the next token; an end token is not part of the text."""
        if token_id in self._end_token_ids:
            if not self._matcher.is_accepting():
                raise ConstraintError(f"id {token_id} ends a text that is not complete")
            return True
        if not self._matcher.consume_token(token_id):
            raise ConstraintError(_reason(self._matcher))
        return self._matcher.is_stopped()

    def restart(self, token_ids: Sequence[int]) -> None:
        """Start over, with these tokens drawn."""
        self._matcher.reset()
        for token_id in token_ids:
            self.advance(token_id)


def _source(params: StructuredOutputsParams, special_tokens: frozenset[str]) -> str:
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
            listed = " | ".join(json.dumps(one) for one in params.choice or ())
            return llguidance.grammar_from("lark", f"start: TEXT\nTEXT: {listed}")
    text = str(getattr(params, params.kind))
    kind = "grammar" if "::=" in text else "lark"  # as every rule of GBNF has
    if params.kind == "regex":
        kind, text = "regex", narrowed(text)
    try:
        return llguidance.grammar_from(kind, text)
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _unforced(source: str) -> str:
    """Return a grammar whose text may be spelled by any tokens.

    Where one text only can follow, llguidance asks for the tokenizer's own tokens of
    it; for a text such as "<|im_end|>" that is the special token, which is no text.
    """
    if source.lstrip().startswith("{"):
        (grammar,) = json.loads(source)["grammars"]
        schema = json.dumps(grammar.get("json_schema"), ensure_ascii=False)
        source = grammar.get("lark_grammar") or f"start: %json {schema}"
    return f'%llguidance {{"no_forcing": true}}\n{source}'


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


def _tag_source(params: StructuredOutputsParams, special_tokens: frozenset[str]) -> str:
    tag = json.loads(str(params.structural_tag))
    try:
        tags = [
            llguidance.StructTag(
                trigger=_trigger(structure["begin"], tag["triggers"]),
                begin=structure["begin"],
                grammar=_prepared(params, structure["schema"]),
                end=structure["end"],
            )
            for structure in tag["structures"]
        ]
        # A trigger in angle brackets is plain text unless the tokenizer knows it.
        special = any(tag.trigger in special_tokens for tag in tags)
        return llguidance.StructTag.to_grammar(tags, assume_special=special)
    except (KeyError, TypeError, AssertionError, StopIteration) as error:
        raise GrammarError(
            "a structural tag needs `structures`, each with `begin`, `schema` and "
            f"`end`, and `triggers`, of which one starts each `begin` ({error!r})"
        ) from error


def _trigger(begin: str, triggers: Sequence[str]) -> str:
    return next(one for one in triggers if begin.startswith(one))


def _reason(matcher: llguidance.LLMatcher) -> str:
    """Return what was found wrong, and where if llguidance says so."""
    first, *more = matcher.get_error().strip().splitlines() or ["it cannot be compiled"]
    if first == "NoExtensionBias":
        return "no text follows it"
    wrong = [line for line in more if line.startswith("error: ")]  # in a pattern
    places = [line.partition(_PLACE)[2] for line in more if _PLACE in line]
    return " ".join([first, *wrong, *(f"(at {place})" for place in places)])
