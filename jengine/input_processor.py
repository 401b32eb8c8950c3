"""From what a user asks to a request that the scheduler takes.

Everything is checked here, before anything is queued: a bad prompt or parameter
raises and costs nothing else.
"""

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, no_type_check

from jengine.core.plan import SamplingOptions
from jengine.core.request import Repetition, Request
from jengine.errors import (
    CheckpointError,
    InvalidValueError,
    PromptError,
    SamplingParamsError,
)
from jengine.prompts import ParsedPrompt, check_token_ids
from jengine.sampling_params import SamplingParams, check_with_model
from jengine.text.tokenizer import Tokenizer

# What a word may follow without a space.
_BEFORE_BARE_WORDS = ("\n", "(")


class EndTokens(NamedTuple):
    """The ids that end an output unless it ignores them.

    Attributes:
      main: the end-of-sequence id, which gives no stop reason; None if unknown.
      others: further ids, each its own stop reason.
    """

    main: int | None
    others: frozenset[int]

    def within(self, vocab_size: int) -> "EndTokens":
        """Leave out ids that no logit stands for, which can never be drawn."""
        others = frozenset(i for i in self.others if 0 <= i < vocab_size)
        main = self.main
        known = main is not None and 0 <= main < vocab_size
        return EndTokens(main if known else None, others)

    @property
    def all(self) -> frozenset[int]:
        """Every id of the two."""
        return self.others if self.main is None else self.others | {self.main}


class BadWordIds(NamedTuple):
    """The ids of bad words.

    Attributes:
      banned_token_ids: words of one id, which never may come.
      sequences: words of several, whose last id may not complete them.
    """

    banned_token_ids: tuple[int, ...]
    sequences: tuple[tuple[int, ...], ...]


class InputLimits(NamedTuple):
    """What requests are checked against.

    Attributes:
      vocab_size: number of logits.
      max_model_len: most tokens of prompt and output together, as configured.
      max_sequence_tokens: the same, as the KV pool allows.
      max_logprobs: most alternatives of a token; -1 for no cap.
      seed: requests without a seed draw theirs from this one.
    """

    vocab_size: int
    max_model_len: int
    max_sequence_tokens: int
    max_logprobs: int
    seed: int


class InputProcessor:
    """Checks and tokenises; numbers the requests that it makes.

    Attributes:
      tokenizer: the model's, None if it was not loaded.
    """

    def __init__(
        self, limits: InputLimits, end_tokens: EndTokens, tokenizer: Tokenizer | None
    ) -> None:
        """Make a processor.

        Args:
          limits: what requests are checked against.
          end_tokens: the model's own end ids.
          tokenizer: turns text into ids; without it prompts must be ids.
        """
        self._limits = limits
        self._end_tokens = end_tokens.within(limits.vocab_size)
        self.tokenizer = tokenizer
        self._num_made = 0
        # Asked for each completion of a prompt, and when its grammar is made.
        self._split_words = functools.lru_cache(maxsize=16)(self._split_words_anew)

    @property
    def max_total_tokens(self) -> int:
        """Most tokens that prompt and output of one request may have."""
        return min(self._limits.max_model_len, self._limits.max_sequence_tokens)

    def tokenize(
        self,
        prompt: ParsedPrompt,
        params: SamplingParams,
        field: str = "prompt",
    ) -> tuple[int, ...]:
        """Return a prompt's ids, truncated as asked and checked against the limits.

        Raises:
          PromptError: no token, too many, an unknown id, or text without a
            tokenizer.
        """
        ids = prompt.token_ids
        if ids is None:
            if self.tokenizer is None:
                raise PromptError(
                    field, prompt.text, "token ids, since no tokenizer is loaded"
                )
            encoded = self.tokenizer.encode(
                prompt.text or "", add_special_tokens=prompt.add_special_tokens
            )
            ids = tuple(encoded)
        ids = self._truncate(ids, params)
        check_token_ids(
            ids, self._limits.vocab_size - 1, self.max_total_tokens, field=field
        )
        return ids

    def _truncate(
        self, ids: tuple[int, ...], params: SamplingParams
    ) -> tuple[int, ...]:
        kept = params.truncate_prompt_tokens
        if kept is None:
            return ids
        if kept == -1:
            kept = max(1, self.max_total_tokens - (params.max_tokens or 1))
        return ids[-kept:]

    def check_params(self, params: SamplingParams) -> None:
        """Check parameters against the model.

        Raises:
          SamplingParamsError: they do not suit it.
        """
        check_with_model(
            params,
            vocab_size=self._limits.vocab_size,
            max_logprobs=self._limits.max_logprobs,
            has_tokenizer=self.tokenizer is not None,
        )
        self.split_bad_words(params)  # refuses what cannot be encoded
        self._check_something_is_left(params)

    def split_bad_words(self, params: SamplingParams) -> "BadWordIds":
        """Return the ids of a request's bad words.

        A word is banned as written, with and without a space before it, and as it is
        spelt right behind other text.
        """
        return self._split_words(tuple(params.bad_words))

    def _split_words_anew(self, bad_words: tuple[str, ...]) -> "BadWordIds":
        found: dict[tuple[int, ...], None] = {}
        for word in bad_words if self.tokenizer is not None else ():
            for ids in self._spellings(word):
                if ids:
                    found[tuple(ids)] = None
        return BadWordIds(
            tuple(ids[0] for ids in found if len(ids) == 1),
            tuple(ids for ids in found if len(ids) > 1),
        )

    def _spellings(self, word: str) -> Iterator[list[int]]:
        bare = word.lstrip()
        try:
            for text in (word, bare, " " + bare):
                yield self._encode(text)
        except PromptError as error:
            raise SamplingParamsError("bad_words", error.found, error.allowed) from None
        # A SentencePiece tokenizer begins every text with a space.
        for before in _BEFORE_BARE_WORDS:
            start = self._encode(before)
            ids = self._encode(before + bare)
            if ids[: len(start)] == start:
                yield ids[len(start) :]

    def _encode(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _check_something_is_left(self, params: SamplingParams) -> None:
        """Refuse parameters that together forbid every id."""
        if params.allowed_token_ids is None:
            return
        left = set(params.allowed_token_ids)
        left -= set(self.split_bad_words(params).banned_token_ids)
        if params.min_tokens:
            left -= self._end_tokens.all | set(params.stop_token_ids)
        if not left:
            raise SamplingParamsError(
                "allowed_token_ids",
                params.allowed_token_ids,
                "ids of which bad_words and min_tokens leave at least one",
            )

    @no_type_check  # it says more than a type checker would
    def check_priority(self, priority: int) -> None:
        """Check a request's priority.

        Raises:
          InvalidValueError: it is no integer.
        """
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidValueError("priority", priority, "an integer")

    def make_request(
        self,
        request_id: str,
        token_ids: Sequence[int],
        params: SamplingParams,
        *,
        index: int = 0,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Request:
        """Make a request of checked ids and parameters.

        Args:
          request_id: unique among live requests.
          token_ids: the prompt.
          params: how to sample.
          index: which of the prompt's `n` completions it is; each draws by a seed of
            its own.
          priority: smaller is served sooner under the priority policy.
          cache_salt: cached blocks are shared only under equal salts.
        """
        number = self._num_made
        self._num_made += 1
        most = self.max_total_tokens
        if params.max_tokens is not None:
            most = min(most, len(token_ids) + params.max_tokens)
        own_stops = frozenset(params.stop_token_ids)
        ends = EndTokens(None, frozenset()) if params.ignore_eos else self._end_tokens
        return Request(
            request_id,
            token_ids,
            max_total_tokens=most,
            options=self._options(
                params, len(token_ids), self._seed(params, number, index), index
            ),
            eos_token_id=ends.main,
            stop_token_ids=own_stops | ends.others,
            priority=priority,
            arrival=number,
            cache_salt=cache_salt,
            reads_cache=not _skips_cache(params, index),
            repetition=_repetition(params),
        )

    def _seed(self, params: SamplingParams, number: int, index: int) -> int:
        if params.seed is None:
            return request_seed(self._limits.seed, number)
        return (params.seed + index) % 2**64 if index else params.seed

    def _options(
        self, params: SamplingParams, num_prompt_tokens: int, seed: int, index: int
    ) -> SamplingOptions:
        # An end id is masked before min_tokens even where it would be ignored.
        named = self._end_tokens.all | frozenset(params.stop_token_ids)
        # A checkpoint may name an end id that has no logit.
        stop_ids = [i for i in named if 0 <= i < self._limits.vocab_size]
        allowed = params.allowed_token_ids
        vocab_size = self._limits.vocab_size
        return SamplingOptions(
            temperature=params.temperature,
            top_k=params.top_k if 0 < params.top_k < vocab_size else 0,
            top_p=params.top_p,
            min_p=params.min_p,
            seed=seed,
            num_logprobs=self._count(params.num_reported),
            # Both may be beyond 32 bits; nothing gets past the context.
            stops_from=min(
                num_prompt_tokens + params.min_tokens, self.max_total_tokens + 1
            ),
            stop_ids=tuple(sorted(stop_ids)) if params.min_tokens else (),
            num_prompt_tokens=num_prompt_tokens,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            repetition_penalty=params.repetition_penalty,
            logit_bias=tuple((params.logit_bias or {}).items()),
            allowed_token_ids=None if allowed is None else tuple(allowed),
            banned_token_ids=self.split_bad_words(params).banned_token_ids,
            # One completion's report on the prompt serves all of them.
            num_prompt_logprobs=None if index else self._count(params.prompt_logprobs),
            logprob_token_ids=tuple(params.logprob_token_ids or ()),
        )

    def _count(self, wanted: int | None) -> int | None:
        most = self._limits.vocab_size
        return most if wanted == -1 else wanted and min(wanted, most)


def _skips_cache(params: SamplingParams, index: int) -> bool:
    # Only what is computed has logits.
    reports = params.prompt_logprobs is not None and index == 0
    return reports or bool(params.skip_reading_prefix_cache)


def _repetition(params: SamplingParams) -> Repetition | None:
    asked = params.repetition_detection
    if asked is None:
        return None
    return Repetition(asked.min_pattern_size, asked.max_pattern_size, asked.min_count)


def request_seed(engine_seed: int, number: int) -> int:
    """Return the 64-bit seed of the engine's n-th request that brings none."""
    digest = hashlib.sha256(f"{engine_seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def find_end_tokens(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    tokenizer_eos: int | None,
) -> EndTokens:
    """Collect the ids that end an output.

    The main one is the tokenizer's, else the first that the files name.
    generation_config.json wins over config.json, which fills in where it is silent.

    Args:
      config: what config.json holds.
      generation_config: what generation_config.json holds.
      tokenizer_eos: the tokenizer's end-of-sequence id.

    Raises:
      CheckpointError: a file names something else than ids.
    """
    named = _as_ids(generation_config.get("eos_token_id"))
    named = named or _as_ids(config.get("eos_token_id"))
    first = named[0] if named else None
    main = first if tokenizer_eos is None else tokenizer_eos
    return EndTokens(main, frozenset(named) - {main})


def _as_ids(value: object) -> list[int]:
    listed: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if value is None:
        return []
    if not all(type(one) is int for one in listed):
        raise CheckpointError(
            f"the checkpoint's eos_token_id is {value!r}; an id or a list of ids is "
            "needed (edit generation_config.json or config.json)"
        )
    return listed
