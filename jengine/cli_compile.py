"""`jengine compile`: what a model's programs would cost on a card that is not here."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from jengine.aot.report import Report, make_report
from jengine.aot.request import DEFAULT_CONTEXT, DEFAULT_LAYERS, SurveyRequest
from jengine.aot.supervisor import Findings, run_survey
from jengine.aot.table import format_report
from jengine.aot.targets import find_target, target_names
from jengine.cli_options import add_engine_flags, take_engine
from jengine.config import EngineConfig
from jengine.errors import ConfigError

EXIT_DOES_NOT_FIT = 2
_PROGRESS_EVERY = 20  # programs


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.description = (
        "Compile every program that an engine would run on a card, without that card,"
        " and say what each costs. Needs only the model's config.json, and"
        " `pip install 'jengine[aot]'`."
    )
    parser.add_argument(
        "--model",
        required=True,
        help="folder with a config.json, the file itself, a .gguf file, or a name on "
        "the hub",
    )
    parser.add_argument(
        "--target", required=True, metavar="CARD", help=", ".join(target_names())
    )
    parser.add_argument(
        "--tensor-parallel-size",
        type=_count,
        default=1,
        metavar="N",
        help="cards that share the model",
    )
    parser.add_argument(
        "--layers",
        type=_layers,
        default=DEFAULT_LAYERS,
        metavar="N|all",
        help=f"layers of the programs that are compiled ({DEFAULT_LAYERS}): figures "
        "of the whole model follow, and two programs are compiled in full as a check",
    )
    parser.add_argument(
        "--sizes",
        choices=("few", "all"),
        default="few",
        help="sizes in which each program is compiled (few): figures of the others "
        "follow, and three of them are compiled as a check",
    )
    parser.add_argument(
        "--context",
        type=_count,
        default=DEFAULT_CONTEXT,
        metavar="N",
        help="tokens of each row, for the roofline of decode programs"
        f" ({DEFAULT_CONTEXT})",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything found there")
    parser.add_argument(
        "--save",
        metavar="DIR",
        help="keep the compiled programs there; compiles all layers and sizes",
    )
    add_engine_flags(parser)


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the command and return its exit status.

    Args:
      flags: the parsed command line.
      environment: variables for the process that compiles.

    Raises:
      JengineError: what was asked for makes no sense, or cannot be compiled here.
    """
    request = make_request(flags)
    if flags.json is not None:
        _check_target_file(Path(flags.json))
    report = make_report(run_survey(request, environment, _show_progress))
    sys.stdout.write(format_report(report))
    if flags.json is not None:
        Path(flags.json).write_text(json.dumps(report.to_dict(), indent=1) + "\n")
    return _check(report)


def make_request(flags: argparse.Namespace) -> SurveyRequest:
    """Read the model's config and gather what is asked.

    Raises:
      JengineError: an unknown card, a bad option, or no such model.
    """
    from jengine.aot.model_config import find_model_config

    options = take_engine(flags)
    target = find_target(flags.target)
    EngineConfig.from_options(flags.model, options)
    return SurveyRequest(
        model=flags.model,
        config=find_model_config(flags.model, options.get("revision")),
        target=target.name,
        options=options,
        tensor_parallel_size=flags.tensor_parallel_size,
        layers=None if flags.save else flags.layers,
        all_sizes=bool(flags.save) or flags.sizes == "all",
        context=flags.context,
        save=flags.save,
    )


def _check_target_file(path: Path) -> None:
    """Refuse a file that cannot be written, before minutes of work are lost."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError("--json", str(path), "a file in a folder that can be written")
    if path.exists() and not os.access(path, os.W_OK):
        raise ConfigError("--json", str(path), "a file that can be written")


def _check(report: Report) -> int:
    """Say what went wrong, if anything did."""
    survey = report.survey
    if not report.fits:
        raise ConfigError(
            "the memory that the largest program needs",
            f"{report.needed_bytes / 2**30:.1f} GiB",
            f"at most {survey['memory_bytes'] / 2**30:.1f} GiB on {survey['target']}",
            "Lower gpu_memory_utilization or max_num_batched_tokens.",
        )
    return 1 if report.failures else 0


def _show_progress(findings: Findings) -> None:
    ended = len(findings.facts) + len(findings.failures)
    total = len(findings.jobs)
    if ended % _PROGRESS_EVERY == 0 or ended == total:
        sys.stderr.write(f"compiled {ended} of {total} programs\n")
        sys.stderr.flush()


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _layers(text: str) -> int | None:
    if text == "all":
        return None
    number = _count(text)
    if number == 1:
        raise argparse.ArgumentTypeError("1 layer does not show what repeats; use 2")
    return number
