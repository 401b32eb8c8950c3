"""From what is asked to engines that run: checkpoints, interpreters, variables."""

import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jengine.bench.compare.backend_process import (
    BackendError,
    Launch,
    engine_of,
    find_engine,
)
from jengine.bench.compare.checkpoint import float32_gguf, hf_folder, vocab_size_of
from jengine.bench.compare.comparison import Patience, compare
from jengine.bench.compare.contender import Contender
from jengine.bench.compare.result import BackendResult
from jengine.bench.compare.workload import Workload
from jengine.bench.machine import allowed_cpus, cpu_count

BACKENDS = ("jengine", "transformers", "vllm", "llama-cpp")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """What to compare.

    Attributes:
      model: a folder, a `.gguf` file or a name on the hub.
      backends: engines, the one that the ratios are of first. `vllm@a` and `vllm@b`
        are one engine with two settings; what follows is by these names.
      pythons: the interpreter of a backend, where it is not this one.
      threads: CPUs that each engine may use; None is all.
      dtype: of weights and arithmetic.
      batches: as in `Workload`, like the next four.
      min_prompt_tokens: of the shortest prompt.
      max_prompt_tokens: of the longest prompt.
      output_tokens: of each request.
      seed: of ids and lengths.
      max_model_len: tokens that an engine makes room for in each request; None is the
        longest request.
      max_num_seqs: requests that an engine makes room for; None is the largest batch.
      engine_options: further options of a backend.
      variables: further environment variables of a backend.
      patience: how often and how long to try.
      cache: for converted checkpoints; None is the user's cache folder.
      logs: folder for what the engines write; None keeps nothing.
    """

    model: str
    backends: Sequence[str] = BACKENDS
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    threads: int | None = None
    dtype: str = "float32"
    batches: tuple[int, ...] = (1, 8, 32, 64)
    min_prompt_tokens: int = 32
    max_prompt_tokens: int = 128
    output_tokens: int = 64
    seed: int = 0
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    engine_options: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    variables: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    patience: Patience = dataclasses.field(default_factory=Patience)
    cache: pathlib.Path | None = None
    logs: pathlib.Path | None = None


def run_comparison(
    request: CompareRequest,
    environment: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> list[BackendResult]:
    """Start all engines one after another, let them take turns, and end them.

    Args:
      request: what to compare.
      environment: variables of this process, which the engines get too.
      say: takes a line about what is going on.

    Returns:
      For each batch size the results of all engines, in their order; those that
      failed say why.

    Raises:
      CheckpointError: the model cannot be used by anyone.
      InvalidValueError: the workload makes no sense.
    """
    cache = request.cache or _user_cache()
    say("preparing the checkpoint")
    folder = hf_folder(request.model, cache)
    workload = _workload(request, vocab_size_of(folder))
    contenders: list[Contender] = []
    with tempfile.TemporaryDirectory(prefix="jengine-compare-") as scratch:
        logs = request.logs or pathlib.Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        try:
            for name in request.backends:
                say(f"{name}: starting")
                contenders.append(Contender(name))
                options = _options(request, name, workload, folder, cache)
                _start(contenders[-1], request, environment, options, workload, logs)
                say(_describe(contenders[-1]))
            return compare(contenders, workload, request.patience, say)
        finally:
            for one in contenders:
                one.close()


def make_launch(
    request: CompareRequest, backend: str, environment: Mapping[str, str]
) -> Launch:
    """Say how to start an engine.

    Raises:
      BackendError: no such engine is known.
    """
    threads = request.threads or cpu_count()
    python = _python_of(request, backend)
    variables = dict(environment)
    variables["PYTHONUNBUFFERED"] = "1"  # its log should be whole when it is killed
    # OpenMP and OpenBLAS start as many threads as the machine has CPUs.
    variables |= {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    variables |= _variables_of(engine_of(backend), threads)
    if (
        python is None
    ):  # it imports what we do; another Python must not see our packages
        variables["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    variables |= request.variables.get(backend, {})
    return Launch(
        backend=backend,
        engine_file=find_engine(backend),
        python=python or sys.executable,
        threads=threads,
        environment=variables,
    )


def _python_of(request: CompareRequest, backend: str) -> str | None:
    """Return the interpreter given for a backend or for its engine."""
    given = request.pythons
    return given.get(backend, given.get(engine_of(backend)))


def _variables_of(engine: str, threads: int) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if engine != "vllm":
        return offline
    return offline | {
        # Left alone it keeps a CPU free for its scheduler: one thread of two.
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, allowed_cpus()[:threads])),
        # It would take half of the memory for keys and values.
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",  # ours ends it before
    }


def _options(
    request: CompareRequest,
    backend: str,
    workload: Workload,
    folder: pathlib.Path,
    cache: pathlib.Path,
) -> dict[str, Any]:
    """Return the first question of the worker's protocol."""
    gguf = (
        float32_gguf(request.model, cache)
        if engine_of(backend) == "llama-cpp"
        else None
    )
    return {
        "folder": str(folder),
        "gguf": None if gguf is None else str(gguf),
        "dtype": request.dtype,
        "threads": request.threads or cpu_count(),
        "max_num_seqs": request.max_num_seqs or max(workload.batches),
        "max_model_len": request.max_model_len or workload.max_model_len,
        "engine": dict(request.engine_options.get(backend, {})),
    }


def _start(
    one: Contender,
    request: CompareRequest,
    environment: Mapping[str, str],
    options: Mapping[str, Any],
    workload: Workload,
    logs: pathlib.Path,
) -> None:
    try:
        launch = make_launch(request, one.name, environment)
    except BackendError as error:
        one.fail(error)
        return
    one.start(
        launch,
        options,
        workload.prompts(1, -1)[0],
        log=logs / f"{one.name}.log",
        timeout_s=request.patience.start_s,
    )


def _describe(one: Contender) -> str:
    if one.error is not None:
        return f"{one.name}: {one.error}"
    return (
        f"{one.name} {one.about['version']}: loaded after {one.about['init_s']:.1f} s,"
        f" first token after {one.about['first_token_s']:.1f} s"
    )


def _workload(request: CompareRequest, vocab_size: int) -> Workload:
    return Workload(
        batches=tuple(request.batches),
        min_prompt_tokens=request.min_prompt_tokens,
        max_prompt_tokens=request.max_prompt_tokens,
        output_tokens=request.output_tokens,
        vocab_size=vocab_size,
        seed=request.seed,
    )


def _user_cache() -> pathlib.Path:
    # Imported late: machines that only try kernels out do not have it.
    import platformdirs

    return platformdirs.user_cache_path("jengine") / "compare"
