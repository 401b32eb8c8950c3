"""The parts of the check, the most valuable first, and the time that each may take."""

import dataclasses

_PACKAGE = "jengine.bench.gpu_check.parts"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something to measure in a process of its own.

    Attributes:
      name: for the command line.
      title: for the table.
      module: that has a function `run(recorder)`.
      limit_s: most seconds, the start of the process included.
      least_s: with fewer seconds left the part is skipped.
      xla_flags: set in the environment of its process instead of the inherited ones;
        None leaves them as they are.
      in_smoke: whether a smoke test runs it unasked; on a CPU two sets of a GPU's
        flags give the same programs.
    """

    name: str
    title: str
    module: str
    limit_s: float
    least_s: float = 12.0
    xla_flags: str | None = None
    in_smoke: bool = True


def _part(name: str, title: str, limit_s: float, module: str) -> Part:
    return Part(name=name, title=title, module=f"{_PACKAGE}.{module}", limit_s=limit_s)


def _flags(name: str, title: str, flags: str | None, *, in_smoke: bool = True) -> Part:
    return dataclasses.replace(
        _part(f"flags-{name}", f"XLA flags: {title}", 25.0, "flag_steps"),
        xla_flags=flags,
        in_smoke=in_smoke,
    )


DEVICE = _part("device", "device and versions", 60.0, "device")

PARTS: tuple[Part, ...] = (
    _part("kernel", "kernel against float64", 55.0, "kernel"),
    _part("parity", "greedy ids, GPU against CPU", 40.0, "parity"),
    _part("bandwidth", "attention beside copies and products", 45.0, "bandwidth"),
    _part("engine", "engine decode", 120.0, "engine"),
    _part("transformers", "transformers decode", 40.0, "torch_decode"),
    _flags("default", "as they are", None),
    _flags(
        "no-triton-gemm",
        "no Triton GEMM",
        "--xla_gpu_enable_triton_gemm=false",
        in_smoke=False,
    ),
    _flags(
        "no-graphs",
        "no command buffers",
        "--xla_gpu_enable_command_buffer=",
        in_smoke=False,
    ),
    _flags(
        "more-graphs",
        "command buffers wherever possible",
        "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL,+DYNAMIC_SLICE_FUSION,"
        "+CUSTOM_CALL,+CUDNN,+CUBLASLT --xla_gpu_graph_min_graph_size=1",
    ),
    _part("tuning", "tiles of the kernel", 45.0, "tuning"),
)
