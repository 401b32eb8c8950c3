"""Rotary embedding settings, read from every spelling that checkpoints use.

transformers 4 wrote `rope_theta` beside `rope_scaling`, the latter with `type` or
`rope_type`; transformers 5 writes one `rope_parameters`. All give one `RopeConfig`,
in which every default is already decided.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from models.config_fields import ConfigFields
from models.errors import UnsupportedModelError

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "frequency_factors")

_DEFAULT_THETA = 10_000.0
# Keys with a meaning here, and `finetuned`, which early YaRN checkpoints carry and
# nothing reads. Any other key may change the angles, so it is refused.
_KNOWN_KEYS = frozenset(
    {
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "frequency_factors",
        "finetuned",
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """How positions turn into angles.

    Attributes:
      rope_type: one of `ROPE_TYPES`. `dynamic` only differs from `default` past
        `max_position_embeddings`, which an engine must not exceed.
        `frequency_factors` divides each frequency by its own factor: GGUF files
        store llama3 scaling so.
      theta: base wavelength.
      factor: context extension (linear, dynamic, llama3, yarn).
      low_freq_factor: llama3 only.
      high_freq_factor: llama3 only.
      original_max_position_embeddings: context length before extension.
      attention_factor: multiplies cosine and sine (yarn; 1 for the others).
      beta_fast: yarn only, rotations above which a frequency stays as it is.
      beta_slow: yarn only, rotations below which a frequency is interpolated.
      truncate: yarn only, whether the correction range is rounded outwards.
      frequency_factors: one divisor per frequency, for the type of that name.
    """

    rope_type: str = "default"
    theta: float = _DEFAULT_THETA
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    frequency_factors: tuple[float, ...] = ()


def rope_from_hf(config: Mapping[str, Any]) -> RopeConfig:
    """Read the rotary settings of a Hugging Face config.

    The order of precedence is that of transformers 5: `rope_scaling` before
    `rope_parameters`; a theta inside before one beside.

    Raises:
      ModelConfigError: if a key is missing or has the wrong type.
      UnsupportedModelError: if the type or a key is not implemented.
    """
    outer = ConfigFields(config)
    name = "rope_scaling" if outer.mapping("rope_scaling") else "rope_parameters"
    rope = ConfigFields(outer.mapping(name), f"{name}.")
    _refuse_unknown(outer, rope, name)
    theta = rope.number("rope_theta", outer.number("rope_theta", _DEFAULT_THETA))
    rope_type = rope.text("rope_type", rope.text("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"config: {name} has the rope type {rope_type!r}; "
            f"supported: {', '.join(ROPE_TYPES)}"
        )
    base = RopeConfig(rope_type=rope_type, theta=theta)
    return dataclasses.replace(base, **_READERS[rope_type](outer, rope))


def _refuse_unknown(outer: ConfigFields, rope: ConfigFields, name: str) -> None:
    unknown = sorted(key for key in rope.values if key not in _KNOWN_KEYS)
    if unknown:
        raise UnsupportedModelError(
            f"config: {name} has the keys {', '.join(map(repr, unknown))}, which "
            f"are not implemented; known: {', '.join(sorted(_KNOWN_KEYS))}"
        )
    for fields in (outer, rope):
        fraction = fields.number("partial_rotary_factor", 1.0)
        if fraction != 1.0:
            raise UnsupportedModelError(
                f"config: {fields.prefix}partial_rotary_factor is {fraction}; only 1 "
                "(every feature of a head is rotated) is supported"
            )


def _nothing(_outer: ConfigFields, _rope: ConfigFields) -> dict[str, Any]:
    return {}


def _factor(_outer: ConfigFields, rope: ConfigFields) -> dict[str, Any]:
    return {"factor": rope.number("factor")}


def _llama3(outer: ConfigFields, rope: ConfigFields) -> dict[str, Any]:
    low = rope.number("low_freq_factor")
    high = rope.number("high_freq_factor")
    if high <= low:
        raise rope.wrong("high_freq_factor", f"above low_freq_factor, {low}")
    return {
        "factor": rope.number("factor"),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": _original_length(outer, rope),
    }


def _yarn(outer: ConfigFields, rope: ConfigFields) -> dict[str, Any]:
    original = _original_length(outer, rope)
    factor = rope.number("factor", outer.integer("max_position_embeddings") / original)
    return {
        "factor": factor,
        "original_max_position_embeddings": original,
        "attention_factor": _yarn_attention_factor(rope, factor),
        "beta_fast": rope.number("beta_fast", 32.0),
        "beta_slow": rope.number("beta_slow", 1.0),
        "truncate": rope.flag("truncate", True),
    }


def _frequency_factors(_outer: ConfigFields, rope: ConfigFields) -> dict[str, Any]:
    factors = rope.sequence("frequency_factors")
    if not factors or not all(isinstance(f, float) and f > 0 for f in factors):
        raise rope.wrong("frequency_factors", "a list of positive numbers")
    return {"frequency_factors": factors}


_READERS = {
    "default": _nothing,
    "linear": _factor,
    "dynamic": _factor,
    "llama3": _llama3,
    "yarn": _yarn,
    "frequency_factors": _frequency_factors,
}


def _original_length(outer: ConfigFields, rope: ConfigFields) -> int:
    """Return the context length before extension, wherever it is written."""
    key = "original_max_position_embeddings"
    if outer.has(key):
        return outer.integer(key)
    return rope.integer(key, outer.integer("max_position_embeddings"))


def _yarn_attention_factor(rope: ConfigFields, factor: float) -> float:
    """Return the factor on cosine and sine.

    Source: Peng et al. 2023, arXiv:2309.00071, section 3.4; the `mscale` pair is
    DeepSeek's extension of it.
    """
    if rope.has("attention_factor"):
        return rope.number("attention_factor")
    if rope.has("mscale") and rope.has("mscale_all_dim"):
        above = _yarn_mscale(factor, rope.number("mscale"))
        return above / _yarn_mscale(factor, rope.number("mscale_all_dim"))
    return _yarn_mscale(factor, 1.0)


def _yarn_mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
