"""What a model is, read once from a Hugging Face `config.json`.

`ModelConfig` holds only what the decoder needs, with every default decided. What
changes the meaning of a checkpoint and is not implemented is refused here, before
any weight is read.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from models.config_fields import ConfigFields
from models.errors import ModelConfigError, UnsupportedModelError
from models.rope_config import RopeConfig, rope_from_hf

__all__ = [
    "SUPPORTED_ARCHITECTURES",
    "ModelConfig",
    "ModelConfigError",
    "RopeConfig",
    "UnsupportedModelError",
    "check_architecture",
]

SUPPORTED_ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and switches of a decoder of the Llama family.

    Attributes:
      architecture: name of the Hugging Face class, one of
        `SUPPORTED_ARCHITECTURES`.
      vocab_size: rows of the embedding and of the head.
      hidden_size: width of the residual stream.
      intermediate_size: width inside the MLP.
      num_layers: decoder layers.
      num_heads: query heads.
      num_kv_heads: key and value heads; divides `num_heads`.
      head_dim: features of one head; need not be `hidden_size / num_heads`.
      rms_norm_eps: added to the mean square in every norm.
      rope: rotary embedding settings.
      max_position_embeddings: longest sequence that the checkpoint allows, what
        linear and yarn scaling add to it included; see `_longest_sequence`.
      tie_word_embeddings: whether the head is the embedding.
      qkv_bias: whether query, key and value projections add a bias.
      o_bias: whether the output projection of attention adds a bias.
      mlp_bias: whether the three MLP projections add a bias.
      qk_norm: whether each query and key head is normalised before rotation.
      sliding_windows: for each layer the number of last positions that a token
        sees, itself included, or None for all.
      dtype: the checkpoint's own number format, such as "bfloat16", if it says.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position_embeddings: int
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_windows: tuple[int | None, ...]
    dtype: str | None

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> "ModelConfig":
        """Read a `config.json`.

        Args:
          config: its parsed content.

        Raises:
          ModelConfigError: if a key is missing, ill-typed or contradicts another.
          UnsupportedModelError: if it asks for what is not implemented.
        """
        fields = ConfigFields(config)
        architecture = _architecture(fields)
        _refuse_unsupported(fields)
        num_layers = fields.integer("num_hidden_layers")
        rope = rope_from_hf(config)
        return cls(
            architecture=architecture,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=fields.integer("hidden_size"),
            intermediate_size=fields.integer("intermediate_size"),
            num_layers=num_layers,
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope=rope,
            max_position_embeddings=_longest_sequence(fields, rope),
            tie_word_embeddings=fields.flag("tie_word_embeddings", False),
            sliding_windows=_sliding_windows(fields, architecture, num_layers),
            dtype=_dtype(fields),
            **_heads(fields, architecture),
            **_switches(fields, architecture),
        )

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """Return the bytes of keys and values of one token in all layers.

        Args:
          itemsize: bytes of one number in the cache.
        """
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize


def check_architecture(architecture: str) -> None:
    """Refuse an architecture that is not implemented.

    Raises:
      UnsupportedModelError: listing those that are.
    """
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModelError(
            f"the architecture {architecture!r} is not supported; "
            f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
        )


def _architecture(fields: ConfigFields) -> str:
    names = fields.sequence("architectures")
    if not names:
        raise ModelConfigError(
            "config: architectures is missing or empty; it must name the model's "
            f"class, one of {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    check_architecture(names[0])
    return names[0]


def _refuse_unsupported(fields: ConfigFields) -> None:
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(
            f"config: hidden_act is {activation!r}; supported: silu"
        )
    quantization = fields.mapping("quantization_config")
    if quantization:  # an empty one asks for nothing
        method = quantization.get("quant_method")
        raise UnsupportedModelError(
            f"config: quantization_config asks for {method!r}; only unquantised "
            "safetensors and GGUF files are supported: take the original checkpoint "
            "or a GGUF file of it"
        )


def _longest_sequence(fields: ConfigFields, rope: RopeConfig) -> int:
    """Return how many positions there are with the scaling counted in.

    The rule is vLLM's: linear and yarn checkpoints state the length before scaling,
    llama3 ones the extended length. A yarn config may state either, and the one
    before scaling also stands in the rope settings, so the larger number is meant.
    `dynamic` is not extended: its angles are right up to the stated length only.
    """
    stated = fields.integer("max_position_embeddings")
    if rope.rope_type == "linear":
        return max(1, int(stated * rope.factor))
    if rope.rope_type == "yarn":
        return max(stated, int(rope.original_max_position_embeddings * rope.factor))
    return stated


def _heads(fields: ConfigFields, architecture: str) -> dict[str, int]:
    num_heads = fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise fields.wrong(
            "num_key_value_heads", f"a divisor of num_attention_heads, {num_heads}"
        )
    return {
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": _head_dim(fields, architecture, num_heads),
    }


def _head_dim(fields: ConfigFields, architecture: str, num_heads: int) -> int:
    # Qwen3's class default, for a config that leaves the key out.
    if architecture == "Qwen3ForCausalLM" and "head_dim" not in fields.values:
        return 128
    hidden_size = fields.integer("hidden_size")
    if not fields.has("head_dim") and hidden_size % num_heads:
        raise fields.wrong(
            "num_attention_heads",
            f"a divisor of hidden_size, {hidden_size}, where head_dim is not given",
        )
    head_dim = fields.integer("head_dim", hidden_size // num_heads)
    if head_dim % 2:
        raise ModelConfigError(
            f"config: a head has {head_dim} features; rotary embedding needs an "
            "even number"
        )
    return head_dim


def _switches(fields: ConfigFields, architecture: str) -> dict[str, bool]:
    """Return biases and norms; each class of transformers reads only its own."""
    reads_bias = architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM")
    bias = reads_bias and fields.flag("attention_bias", False)
    is_llama = architecture == "LlamaForCausalLM"
    return {
        "qkv_bias": bias or architecture == "Qwen2ForCausalLM",
        "o_bias": bias,
        "mlp_bias": is_llama and fields.flag("mlp_bias", False),
        "qk_norm": architecture == "Qwen3ForCausalLM",
    }


def _sliding_windows(
    fields: ConfigFields, architecture: str, num_layers: int
) -> tuple[int | None, ...]:
    """Return the window of each layer, by the rule of the architecture's class."""
    if architecture == "MistralForCausalLM":
        # Here null means no window, and only a missing key means the class default.
        missing = "sliding_window" not in fields.values
        window = 4096 if missing else _optional(fields, "sliding_window")
        return (window,) * num_layers
    if not architecture.startswith("Qwen"):
        return (None,) * num_layers
    if not fields.flag("use_sliding_window", False):
        window = None
    else:
        missing = "sliding_window" not in fields.values
        window = 4096 if missing else _optional(fields, "sliding_window")
    slides = _sliding_layers(fields, num_layers, window is not None)
    return tuple(window if slide else None for slide in slides)


def _optional(fields: ConfigFields, key: str) -> int | None:
    return fields.integer(key) if fields.has(key) else None


def _sliding_layers(
    fields: ConfigFields, num_layers: int, has_window: bool
) -> tuple[bool, ...]:
    kinds = fields.sequence("layer_types")
    if not kinds:
        first = fields.integer("max_window_layers", 28, least=0)
        first = first if has_window else num_layers
        return tuple(layer >= first for layer in range(num_layers))
    allowed = ("full_attention", "sliding_attention")
    if len(kinds) != num_layers or not set(kinds) <= set(allowed):
        raise fields.wrong(
            "layer_types", f"{num_layers} entries out of {', '.join(allowed)}"
        )
    return tuple(kind == "sliding_attention" for kind in kinds)


def _dtype(fields: ConfigFields) -> str | None:
    for key in ("dtype", "torch_dtype"):
        if fields.has(key):
            return fields.text(key).removeprefix("torch.")
    return None
