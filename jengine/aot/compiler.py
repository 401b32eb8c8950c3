"""Compiles a survey's programs, a few at a time, and reports each as it is done."""

import concurrent.futures
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from jengine.aot.abstract import compiling_for, program_shapes, topology
from jengine.aot.facts import ProgramFacts
from jengine.aot.inspect import KernelBook, Subject, inspect
from jengine.aot.request import Job
from jengine.aot.save import ProgramFolder
from jengine.aot.survey import Survey, device_shape, shallow
from jengine.aot.toolchain import explain, find_plugin, find_ptxas
from jengine.runner.program_keys import StepKey, program_name, runs_layers
from jengine.runner.programs import ProgramShapes, lower
from models.config import ModelConfig

_KERNEL_CACHE = "kernels.bin"


class Compiler:
    """Holds what all compilations of a survey share."""

    def __init__(self, survey: Survey, folder: Path) -> None:
        """Describe the card to XLA.

        Args:
          survey: what there is to compile.
          folder: for files that nobody needs afterwards.

        Raises:
          MissingToolError: the plugin or the assembler is not installed.
        """
        find_plugin()
        self._survey, self._folder = survey, folder
        self._book = KernelBook(find_ptxas())
        self._mesh = topology(survey.target, survey.request.tensor_parallel_size)
        self._shapes = {full: self._program_shapes(full) for full in (False, True)}
        self._saved = ProgramFolder.of(survey)

    def compile_all(
        self,
        jobs: Iterable[Job],
        started: Callable[[Job], None],
        done: Callable[[Job, ProgramFacts | str], None],
    ) -> None:
        """Compile programs: lowering here, XLA's part on a few threads.

        Args:
          jobs: what to compile.
          started: called before XLA sees a program.
          done: called with a program's facts, or with why there are none.
        """
        threads = self._survey.request.threads
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            waiting: dict[Any, Job] = {}
            for job in jobs:
                while len(waiting) > threads:  # what is lowered takes memory
                    _collect(waiting, done)
                started(job)
                begun = time.perf_counter()
                try:
                    lowered = self._lower(job)
                except Exception as error:  # this program's, not all's
                    done(job, explain(error))
                    continue
                spent = time.perf_counter() - begun
                waiting[pool.submit(self._compile, job, lowered, spent)] = job
            while waiting:
                _collect(waiting, done)

    def _program_shapes(self, full: bool) -> tuple[ModelConfig, ProgramShapes]:
        survey = self._survey
        model = survey.model if full else shallow(survey.model, survey.request.layers)
        return model, program_shapes(survey, model, self._mesh)

    def _key(self, job: Job) -> StepKey:
        return self._survey.keys[job.number]

    def _lower(self, job: Job) -> jax.stages.Lowered:
        with compiling_for(self._mesh), warnings.catch_warnings():
            # jax 0.11 and 0.12 call Pallas's Triton backend deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            return lower(self._shapes[job.full][1], self._key(job))

    def _compile(
        self, job: Job, lowered: jax.stages.Lowered, spent: float
    ) -> ProgramFacts:
        for cached in (True, False):
            with tempfile.TemporaryDirectory(dir=self._folder) as dump:
                begun = time.perf_counter()
                compiled = lowered.compile(self._options(dump, cached=cached))
                facts = inspect(
                    compiled,
                    Path(dump),
                    self._subject(job),
                    self._book,
                    seconds=spent + time.perf_counter() - begun,
                )
            if facts is not None:
                break
        assert facts is not None, "without a cache every kernel's text is written"
        if self._saved is not None:
            self._saved.save(program_name(self._key(job)), compiled)
        return facts

    def _options(self, dump: str, *, cached: bool) -> dict[str, Any]:
        options: dict[str, Any] = {
            "xla_dump_to": dump,
            "xla_dump_emitter_re": "ptx",
            # Nobody reads the modules, and protos are written faster than text.
            "xla_dump_hlo_as_text": False,
            "xla_dump_hlo_as_proto": True,
        }
        if cached:  # programs of one size share most kernels
            options["xla_gpu_kernel_cache_file"] = str(self._folder / _KERNEL_CACHE)
        return options

    def _subject(self, job: Job) -> Subject:
        layers = self._shapes[job.full][0].num_layers
        if not runs_layers(self._key(job)):
            layers = 0
        return Subject(layers, device_shape(self._survey), self._survey.resolved.dtype)


def _collect(
    waiting: dict[Any, Job], done: Callable[[Job, ProgramFacts | str], None]
) -> None:
    finished, _ = concurrent.futures.wait(
        waiting, return_when=concurrent.futures.FIRST_COMPLETED
    )
    for future in finished:
        job = waiting.pop(future)
        error = future.exception()
        if isinstance(error, Exception):
            done(job, explain(error))
        else:
            done(job, future.result())
