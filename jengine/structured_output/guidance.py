"""Grammars by llguidance: compiled to matchers over bytes, so tokens may split text."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import llguidance
import numpy as np
from llguidance.numpy import fill_next_token_bitmask

from jengine.errors import UnsupportedError
from jengine.structured_output.constraint import ConstraintError, GrammarError
from jengine.structured_outputs import StructuredOutputsParams
from jengine.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

# One space, or a new line and its indentation. Unbounded white space would let a model
# that likes it go on for ever.
_WHITESPACE = r"( |\n[ \t]{0,16})"


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
          UnsupportedError: a tokenizer written in Python, or one without an
            end-of-sequence token.
        """
        if tokenizer.backend is None:
            raise UnsupportedError(
                "structured outputs need a fast tokenizer; this one is in Python"
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
        source = _source(params, self._special_tokens)
        matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise GrammarError(_reason(matcher))
        return matcher

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
            return _json_source(params, str(params.json))
        case "json_object":
            return _json_source(params, '{"type": "object"}')
        case "structural_tag":
            return _tag_source(str(params.structural_tag), special_tokens)
        case "choice":
            listed = json.dumps(params.choice, ensure_ascii=False)
            return llguidance.grammar_from("choice", listed)
    kind = "regex" if params.kind == "regex" else "grammar"
    try:
        return llguidance.grammar_from(kind, str(getattr(params, params.kind)))
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _json_source(params: StructuredOutputsParams, schema: str) -> str:
    if schema == "true":
        schema = "{}"  # the same, in the form that takes options
    options: Any = {"whitespace_flexible": False}
    if not params.disable_any_whitespace:
        pattern = params.whitespace_pattern or _WHITESPACE
        options = {"whitespace_flexible": True, "whitespace_pattern": pattern}
    if params.disable_additional_properties:
        schema = json.dumps(_closed(json.loads(schema)), ensure_ascii=False)
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=options)
    except ValueError as error:
        raise GrammarError(str(error)) from error


def _closed(schema: object) -> object:
    """Forbid properties that no schema names, where it does not say itself."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _tag_source(text: str, special_tokens: frozenset[str]) -> str:
    tag = json.loads(text)
    try:
        tags = [
            llguidance.StructTag(
                trigger=_trigger(structure["begin"], tag["triggers"]),
                begin=structure["begin"],
                grammar=structure["schema"],
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
    lines = matcher.get_error().strip().splitlines()
    return lines[0] if lines else "it cannot be compiled"
