"""What jengine would choose on a device where the options leave it open, and why."""

from jengine.config import EngineConfig, ModelLimits, ResolvedConfig, resolve
from jengine.doctor.device import DeviceFacts
from jengine.doctor.report import Fact

_DTYPES = ("bfloat16", "float16", "float32")  # of checkpoints
_POSITIONS = 8192  # of a model to resolve for; no choice shown here depends on it


def list_choices(device: DeviceFacts) -> tuple[Fact, ...]:
    """Return the choices with their reasons.

    Args:
      device: on which jax runs.
    """
    chosen = _resolved(device, "bfloat16")
    warmup = "at the start" if chosen.warmup else "when they are first needed"
    return (
        _attention(device, chosen),
        _dtype(device),
        Fact("max_num_seqs", str(chosen.max_num_seqs), "max_num_seqs sets another"),
        Fact(
            "max_num_batched_tokens",
            str(chosen.max_num_batched_tokens),
            "tokens that one step may run; max_num_batched_tokens sets another",
        ),
        Fact("programs are compiled", warmup, "warmup=True or False sets it"),
        Fact("memory for keys and values", *_pool(device)),
    )


def _resolved(device: DeviceFacts, dtype: str) -> ResolvedConfig:
    limits = ModelLimits(
        vocab_size=32_000,
        max_position_embeddings=_POSITIONS,
        dtype=dtype,
        platform=device.platform,
        compute_capability=device.compute_capability,
    )
    return resolve(EngineConfig(model="any"), limits)


def _attention(device: DeviceFacts, chosen: ResolvedConfig) -> Fact:
    capability = device.compute_capability
    if chosen.attention_backend == "pallas" and capability is not None:
        why = "compute capability {}.{} has at least 8.0".format(*capability)
    elif device.platform == "cpu":
        why = "the Pallas kernels are for NVIDIA GPUs; a CPU would interpret them"
    elif capability is None:
        why = "the Pallas kernels are for NVIDIA GPUs"
    else:
        found = "{}.{}".format(*capability)
        why = f"the Pallas kernels need compute capability 8.0, and this has {found}"
    return Fact("attention", chosen.attention_backend, why)


def _dtype(device: DeviceFacts) -> Fact:
    found = {dtype: _resolved(device, dtype).dtype for dtype in _DTYPES}
    if len(set(found.values())) == 1:
        return Fact(
            "dtype",
            found["bfloat16"],
            "other products are several times slower on a CPU",
        )
    words = "the checkpoint's own; " + ", ".join(
        f"{to} for {asked}" for asked, to in found.items() if to != asked
    )
    return Fact("dtype", words, "dtype sets another")


def _pool(device: DeviceFacts) -> tuple[str, str]:
    size = f"{device.pool_bytes / 2**30:.1f} GiB"
    if device.platform == "cpu":
        return size, "a sixteenth of all memory; kv_cache_memory_bytes sets another"
    return f"{size} less the weights", "gpu_memory_utilization sets another share"
