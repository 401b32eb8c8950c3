"""Trains the demo model on the clean stories and writes its checkpoint.

    python -m demo_training.train --stories clean.jsonl --out jengine/demo_model \
        --log demo_training/log.json

The model is the Llama of `models/llama.py`, trained in float32 by AdamW from a fixed
seed. The checkpoint is that of the epoch with the least held-out loss.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from demo_training.corpus import Encoded, Rows, one_a_row, pack, read_stories, vary
from demo_training.dense import initialise, logits
from demo_training.export import export
from demo_training.train_tokenizer import save_tokenizer, train_tokenizer
from models.config import ModelConfig
from models.llama import Llama

SEED = 0
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": 0,
    "eos_token_id": 1,
    "do_sample": True,
    "temperature": 0.5,
    "max_new_tokens": 160,
}
ROW = 256
BATCH = 8
PEAK_RATE = 3e-3


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a tokenizer, then the model, and note how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    asked = parser.parse_args(arguments)
    learnt, held_out = read_stories(asked.stories)
    tokenizer = train_tokenizer((s.text for s in learnt), CONFIG["vocab_size"])
    save_tokenizer(tokenizer, asked.out)
    unseen = one_a_row([Encoded.of(s, tokenizer) for s in held_out], ROW)
    num_tokens = sum(len(Encoded.of(s, tokenizer).plain) for s in learnt)
    print(f"{len(learnt)} stories, {num_tokens} tokens; {len(held_out)} held out")

    def draw(rng: np.random.Generator) -> Rows:
        varied = [Encoded.of(vary(story, rng), tokenizer) for story in learnt]
        return pack(varied, ROW, rng)

    curve = train(draw, unseen, asked.epochs, asked.out)
    held_bytes = sum(len(story.text.encode()) for story in held_out)
    held_tokens = float(unseen.is_target.sum())
    log = {
        "stories": len(learnt),
        "tokens": num_tokens,
        "held_out_stories": len(held_out),
        "held_out_tokens": held_tokens,
        "held_out_bytes": held_bytes,
        "curve": curve,
    }
    asked.log.write_text(json.dumps(log, indent=1) + "\n")


def train(
    draw: Callable[[np.random.Generator], Rows], unseen: Rows, epochs: int, folder: Path
) -> list[dict[str, float]]:
    """Train, and write the checkpoint whenever it is the best so far.

    Args:
      draw: returns the rows of an epoch.
      unseen: the rows that are held out.
      epochs: how often the stories are read.
      folder: where the checkpoint goes.

    Returns:
      For each epoch the losses, in nats a token, and the minutes so far.
    """
    rng = np.random.default_rng(SEED)
    model = Llama(ModelConfig.from_hf(CONFIG), dtype=jnp.dtype("float32"))
    initialise(model, SEED)
    steps = epochs * (len(draw(np.random.default_rng(1)).ids) // BATCH)
    optimizer = nnx.Optimizer(model, make_optimizer(steps), wrt=nnx.Param)
    curve, best, started = [], math.inf, time.monotonic()
    for epoch in range(1, epochs + 1):
        losses = [
            train_step(model, optimizer, *map(jnp.asarray, batch))
            for batch in batches(draw(rng), rng)
        ]
        loss = held_out_loss(model, unseen)
        point = {
            "epoch": epoch,
            "train_loss": round(float(np.mean(losses)), 4),
            "held_out_loss": round(loss, 4),
            "minutes": round((time.monotonic() - started) / 60, 2),
        }
        print(point, flush=True)
        curve.append(point)
        if loss < best:
            best = loss
            export(model, CONFIG, GENERATION_CONFIG, folder)
    return curve


def make_optimizer(steps: int) -> optax.GradientTransformation:
    """Return AdamW with warm-up and a cosine to zero; norms do not decay."""
    rate = optax.warmup_cosine_decay_schedule(
        0.0, PEAK_RATE, max(1, min(100, steps // 10)), steps
    )
    decay = optax.adamw(
        rate, b2=0.95, weight_decay=0.1, mask=lambda p: jax.tree.map(_is_matrix, p)
    )
    return optax.chain(optax.clip_by_global_norm(1.0), decay)


def _is_matrix(leaf: Any) -> bool:
    return jnp.ndim(leaf) > 1


def batches(
    rows: Rows, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows in batches of `BATCH`, in random order; the rest is left out."""
    order = rng.permutation(len(rows.ids))
    for first in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[first : first + BATCH]
        yield rows.ids[chosen], rows.is_target[chosen]


@nnx.jit
def train_step(
    model: Llama,
    optimizer: nnx.Optimizer,
    ids: Int[Array, "N S"],
    is_target: Float[Array, "N S"],
) -> Float[Array, ""]:
    """Take one step; return the mean loss of the batch before it, in nats a token."""

    def mean_loss(model: Llama) -> Float[Array, ""]:
        count = jnp.maximum(jnp.sum(is_target[:, 1:]), 1.0)  # a row may be a request
        return total_loss(model, ids, is_target) / count

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


def total_loss(
    model: Llama, ids: Int[Array, "N S"], is_target: Float[Array, "N S"]
) -> Float[Array, ""]:
    """Return the sum of the losses of all targets, in nats."""
    scores = logits(model, ids[:, :-1])
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, ids[:, 1:])
    return jnp.sum(losses * is_target[:, 1:])


def held_out_loss(model: Llama, rows: Rows) -> float:
    """Return the mean loss, in nats a token, of all targets of these rows."""
    total = 0.0
    for first in range(0, len(rows.ids), BATCH):
        part = slice(first, first + BATCH)
        batch = jnp.asarray(rows.ids[part]), jnp.asarray(rows.is_target[part])
        total += float(nnx.jit(total_loss)(model, *batch))
    return total / float(rows.is_target[:, 1:].sum())


if __name__ == "__main__":
    main()
