"""Bytes that a step must move and operations that it must do: the roofline.

With body = parameters of all layers and the final norm, head = V x M, T tokens, R
rows, C tokens of context, L layers, and b bytes of a number:

    bytes  weights:    b (body + T M)        forward;   b V M  where logits are made
           KV written: T k                   k = 2 L K D b, of one token
           KV read:    R C k                 decode; window layers read min(C, window)
                       T k                   a prompt's chunk that starts it
    flops  matrices:   2 T (matrices of the layers) + 2 R V M where logits are made
           attention:  4 H D pairs           a layer; pairs = R C for decode,
                                             T (T + 1) / 2 for a prompt's chunk

    roofline = max(bytes / bandwidth, flops / peak)

Activations, logits and tables are left out; so are norms and the softmax. A program
over N devices has an N-th of all this on each, and collectives are left out too: no
step can be faster than this, and none is quite as fast. Standard library only.
"""

from typing import NamedTuple

from models.config import ModelConfig


class ModelSizes(NamedTuple):
    """What the roofline needs to know of a model.

    Attributes:
      body: parameters of the layers and the final norm.
      matrices: those of them that are matrices.
      head: parameters of the head.
      embedding: parameters of the embedding, 0 where it is the head.
      hidden_size: width of the residual stream.
      head_width: features of all query heads.
      kv_width: features of keys and values of one token in one layer.
      windows: for each layer the tokens that it sees; None for all.
    """

    body: int
    matrices: int
    head: int
    embedding: int
    hidden_size: int
    head_width: int
    kv_width: int
    windows: tuple[int | None, ...]

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.body + self.head + self.embedding


class StepShape(NamedTuple):
    """What a program runs.

    Attributes:
      tokens: tokens that go through the layers; 0 for a sampling program.
      logit_rows: rows whose logits are made.
      context: tokens that each single-token row sees; None for a step that is one
        prompt's first chunk.
    """

    tokens: int
    logit_rows: int
    context: int | None


class Work(NamedTuple):
    """What a step must do."""

    bytes_moved: int
    flops: int

    def seconds(self, bandwidth: int | float, flops_per_s: int | float) -> float:
        """Return the least time that it can take."""
        return max(self.bytes_moved / bandwidth, self.flops / flops_per_s)


def model_sizes(config: ModelConfig) -> ModelSizes:
    """Count a model's parameters."""
    width, inner = config.hidden_size, config.intermediate_size
    head_width = config.num_heads * config.head_dim
    kv_width = 2 * config.num_kv_heads * config.head_dim
    matrices = width * (head_width + kv_width) + head_width * width + 3 * width * inner
    biases = (
        config.qkv_bias * (head_width + kv_width)
        + config.o_bias * width
        + config.mlp_bias * (2 * inner + width)
    )
    norms = 2 * width + config.qk_norm * 2 * config.head_dim
    head = config.vocab_size * width
    return ModelSizes(
        body=config.num_layers * (matrices + biases + norms) + width,
        matrices=config.num_layers * matrices,
        head=head,
        embedding=0 if config.tie_word_embeddings else head,
        hidden_size=width,
        head_width=head_width,
        kv_width=kv_width,
        windows=config.sliding_windows,
    )


def step_work(
    sizes: ModelSizes, shape: StepShape, *, itemsize: int, devices: int = 1
) -> Work:
    """Return what one device must do; see the module for the formulas.

    Args:
      sizes: of the whole model.
      shape: what the program runs.
      itemsize: bytes of a parameter and of a number in the cache.
      devices: that share the model.
    """
    numbers = sizes.head if shape.logit_rows else 0
    flops = 2 * shape.logit_rows * sizes.head
    if shape.tokens:
        read = sum(_tokens_read(shape, window) for window in sizes.windows)
        written = shape.tokens * len(sizes.windows)
        pairs = sum(_pairs(shape, window) for window in sizes.windows)
        numbers += sizes.body + shape.tokens * sizes.hidden_size
        numbers += (read + written) * sizes.kv_width
        flops += 2 * shape.tokens * sizes.matrices + 4 * sizes.head_width * pairs
    return Work(numbers * itemsize // devices, flops // devices)


def _tokens_read(shape: StepShape, window: int | None) -> int:
    if shape.context is None:
        return shape.tokens
    return shape.tokens * _seen(shape.context, window)


def _pairs(shape: StepShape, window: int | None) -> int:
    """Count the pairs of a query and a key that it sees, in one layer."""
    if shape.context is not None:
        return shape.tokens * _seen(shape.context, window)
    full = _seen(shape.tokens, window)  # queries until the window is full
    return full * (full + 1) // 2 + (shape.tokens - full) * full


def _seen(tokens: int, window: int | None) -> int:
    return tokens if window is None else min(tokens, window)
