"""`SamplingParams`: how one request's tokens are chosen and when it ends.

Names, defaults and normalisation are those of vLLM. Everything that can be judged
without a model is checked here, when the object is made; `check_with_model` judges the
rest when a request is added. Standard library only.
"""

import dataclasses
import enum
import functools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, no_type_check

from jengine.errors import SamplingParamsError
from jengine.field_rules import apply_rules, instance_of, member_of, optional
from jengine.repetition_detection import RepetitionDetectionParams, repetition_rule
from jengine.sampling_rules import GENERATION_CONFIG_FIELDS, SAMPLING_RULES
from jengine.structured_outputs import (
    GuidedDecodingParams as GuidedDecodingParams,  # vLLM's scripts find it here
)
from jengine.structured_outputs import StructuredOutputsParams

GREEDY_BELOW = 1e-5  # temperatures under this mean "take the best token"
LEAST_TEMPERATURE = 0.01  # dividing logits by less overflows float32

logger = logging.getLogger(__name__)


class RequestOutputKind(enum.Enum):
    """What each `RequestOutput` of an unfinished request carries."""

    CUMULATIVE = 0  # everything since the start
    DELTA = 1  # only what is new
    FINAL_ONLY = 2  # nothing until the request has finished

    __repr__ = enum.Enum.__str__  # so that a printed SamplingParams can be pasted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
@no_type_check  # it checks its own fields, and says more than a type checker would
class SamplingParams:
    """How one request's tokens are chosen and when it ends.

    Immutable and hashable; change a copy by `dataclasses.replace`. Lists are kept as
    tuples. None means the default, except for `max_tokens`.

    >>> SamplingParams(temperature=0, top_p=0.5, stop="END", max_tokens=None)
    SamplingParams(temperature=0.0, stop=('END',), max_tokens=None)

    Attributes:
      n: completions for each prompt.
      presence_penalty: subtracted once from the logits of tokens already produced.
      frequency_penalty: the same, times how often each was produced.
      repetition_penalty: divides (if negative: multiplies) the logits of tokens in
        prompt or output; 1 is off.
      temperature: 0 to 2. Below 1e-5 is greedy: the best token always, and top_p,
        top_k and min_p go back to off. From there up to 0.01 is raised to 0.01.
      top_p: draw from the fewest tokens whose probabilities reach this sum.
      top_k: draw from this many best tokens; 0 and -1 are off.
      min_p: drop tokens below this share of the best token's probability.
      seed: 64 bits, signed or unsigned; None and -1 leave the choice to the engine.
      stop: strings that end the request once the output contains one.
      stop_token_ids: token ids that end the request.
      ignore_eos: go on after the model's own end-of-sequence tokens.
      max_tokens: most tokens to produce; None fills the model's context.
      min_tokens: tokens to produce before anything may end the request.
      logprobs: report this many best tokens for each position; 0 only the sampled
        one, -1 the whole vocabulary; True is 1 and False is None.
      prompt_logprobs: the same for the prompt's tokens.
      logprob_token_ids: token ids whose logprobs are reported besides, whatever
        their rank, which is None.
      flat_logprobs: return logprobs as a `FlatLogprobs`.
      detokenize: make text; False leaves it empty.
      skip_special_tokens: leave special tokens out of the text.
      spaces_between_special_tokens: put spaces between special tokens in the text.
      include_stop_str_in_output: keep the stop string or stop token in the text.
      output_kind: what the outputs of an unfinished request carry.
      stream_interval: tokens between two streamed outputs; None is the engine's,
        which it may not fall below.
      structured_outputs: what the text must look like.
      guided_decoding: older name of the same; kept under the new one.
      logit_bias: token id -> number added to its logit; beyond 1e30 either way it
        counts as that.
      allowed_token_ids: the only ids that may be sampled.
      bad_words: words that must not be produced.
      truncate_prompt_tokens: keep only this many last tokens of the prompt; -1 as
        many as fit beside `max_tokens`.
      skip_reading_prefix_cache: compute the whole prompt anew; None does so when
        `prompt_logprobs` needs it.
      repetition_detection: end requests that repeat themselves, see
        `RepetitionDetectionParams`; a dict of its fields will do.
      extra_args: free values for plug-ins, which are kept; the engine reads none.

    Raises:
      SamplingParamsError: a value is not allowed.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: Sequence[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    guided_decoding: StructuredOutputsParams | None = None
    logit_bias: Mapping[int, float] | None = dataclasses.field(default=None, hash=False)
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    truncate_prompt_tokens: int | None = None
    skip_reading_prefix_cache: bool | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    extra_args: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check what was given and keep its normal form."""
        self._take_older_name()
        kept = apply_rules(_RULES, _with_defaults(self), SamplingParamsError)
        for field, value in kept.items():
            object.__setattr__(self, field, value)
        self._check_together()
        self._normalise_temperature()

    def __repr__(self) -> str:
        """Return the call that makes this object, without the defaults."""
        shown = [f"{name}={value!r}" for name, value in _changed_fields(self).items()]
        return f"SamplingParams({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make it again: what is read-only inside cannot be copied."""
        return functools.partial(SamplingParams, **_changed_fields(self)), ()

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is taken always, so that nothing is drawn."""
        return self.temperature == 0.0

    @property
    def num_reported(self) -> int | None:
        """Best tokens reported for each position; None reports nothing."""
        if self.logprobs is None and self.logprob_token_ids:
            return 0
        return self.logprobs

    def clone(self) -> "SamplingParams":
        """Return an equal object."""
        return dataclasses.replace(self)

    @classmethod
    def from_optional(cls, **fields: Any) -> "SamplingParams":
        """Make parameters from the fields of a request in JSON.

        None means the default. The ids of `logit_bias` may be written as strings, and
        its values are clamped to -100..100.
        """
        bias = fields.get("logit_bias")
        if isinstance(bias, Mapping):
            items = cast("Mapping[Any, Any]", bias).items()
            fields["logit_bias"] = {_json_key(k): _clamp(v) for k, v in items}
        return cls(**fields)

    @classmethod
    def from_generation_config(
        cls, generation_config: Mapping[str, Any]
    ) -> "SamplingParams":
        """Make the parameters that a checkpoint's generation_config.json proposes."""
        given = {
            field: generation_config[key]
            for key, field in GENERATION_CONFIG_FIELDS.items()
            if generation_config.get(key) is not None
        }
        return cls(**given)

    def _check_together(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise SamplingParamsError(
                "min_tokens", self.min_tokens, f"at most max_tokens = {self.max_tokens}"
            )
        if self.stop and not self.detokenize:
            raise SamplingParamsError(
                "stop",
                self.stop,
                "no stop strings while detokenize is False",
                "Stop strings are found in the text; use stop_token_ids.",
            )

    def _take_older_name(self) -> None:
        if self.guided_decoding is None:
            return
        if self.structured_outputs is not None:
            raise SamplingParamsError(
                "guided_decoding",
                self.guided_decoding,
                "None beside structured_outputs, which is the same",
            )
        object.__setattr__(self, "structured_outputs", self.guided_decoding)
        object.__setattr__(self, "guided_decoding", None)

    def _normalise_temperature(self) -> None:
        if self.temperature < GREEDY_BELOW:
            for field in ("temperature", "top_p", "top_k", "min_p"):
                neutral = 0.0 if field == "temperature" else _DEFAULTS[field]
                object.__setattr__(self, field, neutral)
        elif self.temperature < LEAST_TEMPERATURE:
            logger.warning(
                "temperature %g is raised to %g: smaller ones overflow",
                self.temperature,
                LEAST_TEMPERATURE,
            )
            object.__setattr__(self, "temperature", LEAST_TEMPERATURE)


def check_with_model(
    params: SamplingParams,
    *,
    vocab_size: int,
    max_logprobs: int,
    has_tokenizer: bool = True,
) -> None:
    """Check what only the engine knows: the ids that exist and its own limits.

    Args:
      params: the parameters of a request that is about to be added.
      vocab_size: number of logits of the model.
      max_logprobs: the engine's cap of logprobs; -1 is none.
      has_tokenizer: whether the engine makes text at all.

    Raises:
      SamplingParamsError: the parameters do not suit this engine.
    """
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check_ids("logit_bias", params.logit_bias or (), vocab_size)
    for field in ("stop", "bad_words", "structured_outputs"):
        if getattr(params, field) and not has_tokenizer:
            raise SamplingParamsError(
                field,
                getattr(params, field),
                "nothing without a tokenizer, since it is about text",
                "Let the engine load its tokenizer.",
            )
    _check_ids("logprob_token_ids", params.logprob_token_ids or (), vocab_size)
    for field in ("logprobs", "prompt_logprobs"):
        _check_logprobs(field, getattr(params, field), vocab_size, max_logprobs)


def _check_ids(field: str, token_ids: Iterable[int], vocab_size: int) -> None:
    for token_id in token_ids:
        if token_id >= vocab_size:
            allowed = f"token ids of the model, 0 to {vocab_size - 1}"
            raise SamplingParamsError(field, token_id, allowed)


def _check_logprobs(
    field: str, logprobs: int | None, vocab_size: int, max_logprobs: int
) -> None:
    cap = vocab_size if max_logprobs == -1 else max_logprobs
    asked = vocab_size if logprobs == -1 else logprobs
    if asked is not None and asked > cap:
        raise SamplingParamsError(
            field,
            logprobs,
            f"0 to {cap}, the engine's max_logprobs",
            "Start the engine with a larger max_logprobs (-1 is no cap).",
        )


def _with_defaults(params: SamplingParams) -> dict[str, object]:
    given = {field: getattr(params, field) for field in _RULES}
    return {
        field: _DEFAULTS[field] if value is None and field != "max_tokens" else value
        for field, value in given.items()
    }


def _changed_fields(params: SamplingParams) -> dict[str, Any]:
    fields = dataclasses.fields(params)
    given = {f.name: getattr(params, f.name) for f in fields}
    if params.logit_bias is not None:
        given["logit_bias"] = dict(params.logit_bias)
    return {f.name: given[f.name] for f in fields if given[f.name] != f.default}


def _json_key(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _clamp(bias: object) -> object:
    if not isinstance(bias, int | float) or math.isnan(bias):
        return bias  # for the constructor to refuse
    return min(100.0, max(-100.0, bias))


_RULES = {
    **SAMPLING_RULES,
    "output_kind": member_of(RequestOutputKind),
    "structured_outputs": optional(instance_of(StructuredOutputsParams)),
    "repetition_detection": optional(repetition_rule()),
}

_DEFAULTS: Mapping[str, object] = {
    field.name: field.default for field in dataclasses.fields(SamplingParams)
}
