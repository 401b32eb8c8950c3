"""Measure engines side by side on the same checkpoint and the same prompts.

Each engine runs in a process of its own, and in a Python of its own where one is
given. They take turns; a call during which other processes used the machine is
repeated. An engine that fails is reported with its error.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping

from jengine.bench.compare.comparison import Patience
from jengine.bench.compare.launch import BACKENDS, CompareRequest, run_comparison
from jengine.bench.compare.report import format_report, to_list
from jengine.bench.machine import describe_machine
from jengine.cli_bench.flag_types import (
    add_setting,
    amount,
    count,
    counts,
    lengths,
    names,
    not_negative,
    output_file,
    positive,
    say,
)

EXIT_SOME_FAILED = 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "--model",
        required=True,
        help="folder or .gguf file of a checkpoint; llama-cpp needs a .gguf file",
    )
    parser.add_argument(
        "--backends",
        type=names,
        default=BACKENDS,
        metavar="A,B,...",
        help=f"what to measure, yours first ({','.join(BACKENDS)}); vllm@a and vllm@b"
        " are one with two settings",
    )
    add_setting(parser, "--python", "BACKEND=PATH", "the Python that has a backend")
    add_setting(
        parser, "--engine-options", "BACKEND=JSON", "further options of a backend"
    )
    add_setting(
        parser, "--env", "BACKEND.NAME=VALUE", "a variable of a backend's environment"
    )
    _add_workload_flags(parser)
    _add_patience_flags(parser)
    parser.add_argument(
        "--json", type=output_file, metavar="FILE", help="write the results there"
    )
    parser.add_argument(
        "--logs", metavar="FOLDER", help="keep what the backends write there"
    )


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the comparison and return the exit status."""
    results = run_comparison(make_request(flags), environment, say)
    machine = describe_machine()
    sys.stdout.write(format_report(results, machine))
    if flags.json is not None:
        text = json.dumps(to_list(results, machine), indent=1)
        pathlib.Path(flags.json).write_text(text + "\n", "utf-8")
    return EXIT_SOME_FAILED if any(one.error for one in results) else 0


def make_request(flags: argparse.Namespace) -> CompareRequest:
    """Gather what is asked."""
    variables: dict[str, dict[str, str]] = {}
    for name, value in flags.env:
        backend, _, variable = name.partition(".")
        variables.setdefault(backend, {})[variable] = value
    return CompareRequest(
        model=flags.model,
        backends=flags.backends,
        pythons=dict(flags.python),
        threads=flags.threads,
        dtype=flags.dtype,
        batches=flags.batches,
        min_prompt_tokens=flags.input_len[0],
        max_prompt_tokens=flags.input_len[1],
        output_tokens=flags.output_len,
        seed=flags.seed,
        max_model_len=flags.max_model_len,
        max_num_seqs=flags.max_num_seqs,
        engine_options={name: json.loads(text) for name, text in flags.engine_options},
        variables=variables,
        patience=Patience(
            rounds=flags.rounds,
            max_foreign_cpus=flags.max_foreign_cpus,
            max_repeats=flags.max_repeats,
            quiet_wait_s=flags.quiet_wait,
            start_s=flags.timeout,
            call_s=flags.timeout,
        ),
        logs=None if flags.logs is None else pathlib.Path(flags.logs),
    )


def _add_workload_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument(
        "--batches", type=counts, default=(1, 8, 32, 64), metavar="N,N,..."
    )
    group.add_argument(
        "--input-len",
        type=lengths,
        default=(32, 128),
        metavar="LEAST-MOST",
        help="prompt tokens, random ids (32-128)",
    )
    group.add_argument("--output-len", type=count, default=64, metavar="N")
    group.add_argument("--seed", type=int, default=0, metavar="N")
    group.add_argument("--dtype", default="float32")
    group.add_argument(
        "--threads", type=count, metavar="N", help="CPUs of each backend (all)"
    )
    group.add_argument(
        "--max-model-len", type=count, metavar="N", help="(the longest request)"
    )
    group.add_argument(
        "--max-num-seqs", type=count, metavar="N", help="(the largest batch)"
    )


def _add_patience_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rounds")
    usual = Patience()
    group.add_argument("--rounds", type=count, default=usual.rounds, metavar="N")
    group.add_argument(
        "--max-foreign-cpus",
        type=amount,
        default=usual.max_foreign_cpus,
        metavar="X",
        help="CPUs that others may use during a call before it is repeated"
        f" ({usual.max_foreign_cpus})",
    )
    group.add_argument(
        "--max-repeats", type=not_negative, default=usual.max_repeats, metavar="N"
    )
    group.add_argument(
        "--quiet-wait",
        type=amount,
        default=usual.quiet_wait_s,
        metavar="SECONDS",
        help="longest wait for a quiet machine before a repetition",
    )
    group.add_argument(
        "--timeout",
        type=positive,
        default=usual.call_s,
        metavar="SECONDS",
        help="of a start, and of a call",
    )
