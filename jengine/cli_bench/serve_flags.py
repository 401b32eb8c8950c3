"""Put a load on a server with OpenAI's interface, and report what its users notice.

With --backend jengine there is no server: an engine of this process is asked.
"""

import argparse
import asyncio
import collections
import datetime
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm.auto import tqdm

from jengine.bench.arrivals import offered_rate
from jengine.bench.bench_request import BenchRequest
from jengine.bench.figures import parse_slos
from jengine.bench.programs import about_programs
from jengine.bench.saved import append_result, save_result
from jengine.bench.serve.engine_target import EngineTarget
from jengine.bench.serve.load import LoadRun, run_load, wait_until_ready
from jengine.bench.serve.outcome import Outcome
from jengine.bench.serve.serve_report import DEFAULT_METRICS, format_serve_result
from jengine.bench.serve.serve_result import NAMES, ServeResult, detailed, make_result
from jengine.bench.serve.target import Target
from jengine.cli_bench.dataset_flags import add_dataset_flags, dataset_name_of
from jengine.cli_bench.flag_types import (
    add_setting,
    names,
    percents,
    say,
)
from jengine.cli_bench.load_flags import add_load_flags, check_schedule, schedule
from jengine.cli_bench.serve_target import add_target_flags, open_target
from jengine.errors import InvalidValueError

_MOST_ERRORS = 10  # different ones that are shown


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags; names and defaults are vLLM's."""
    add_target_flags(parser)
    add_dataset_flags(parser, num_prompts=1000)
    add_load_flags(parser)
    group = parser.add_argument_group("report")
    group.add_argument(
        "--percentile-metrics",
        type=names,
        default=DEFAULT_METRICS,
        metavar="A,B,...",
        help=f"of {', '.join(NAMES)} ({','.join(DEFAULT_METRICS)})",
    )
    group.add_argument(
        "--metric-percentiles", type=percents, default=(99.0,), metavar="P,P,..."
    )
    group.add_argument(
        "--goodput",
        nargs="+",
        default=[],
        metavar="NAME:MS",
        help="objectives: longest ttft, tpot and e2el in milliseconds",
    )
    group.add_argument("--save-result", action="store_true", help="write a JSON file")
    group.add_argument(
        "--save-detailed", action="store_true", help="with every request in it"
    )
    group.add_argument(
        "--append-result", action="store_true", help="add a line to the file instead"
    )
    group.add_argument("--result-dir", metavar="FOLDER", default=".")
    group.add_argument(
        "--result-filename", metavar="FILE", help="(backend, rate, date and time)"
    )
    add_setting(parser, "--metadata", "NAME=VALUE", "kept in the JSON file")
    group.add_argument("--disable-tqdm", action="store_true")


def run(flags: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the load, print, and return the exit status: 1 if all requests failed."""
    del environment  # nothing is started
    slos = parse_slos(flags.goodput)
    unknown = set(flags.percentile_metrics) - set(NAMES)
    if unknown:
        raise InvalidValueError(
            "percentile_metrics", ",".join(sorted(unknown)), ", ".join(NAMES)
        )
    if not pathlib.Path(flags.result_dir).is_dir():
        raise InvalidValueError("result_dir", flags.result_dir, "a folder")
    check_schedule(flags, is_recorded=dataset_name_of(flags) == "trace")
    done, requests = asyncio.run(_run(flags))
    result = make_result(
        done.outcomes, done.duration_s, percents=flags.metric_percentiles, slos=slos
    )
    if result.completed:
        text = format_serve_result(
            result,
            request_rate=flags.request_rate,
            max_concurrency=flags.max_concurrency,
            metrics=flags.percentile_metrics,
        )
        sys.stdout.write(text + "\n")
    _tell_failures(done.outcomes)
    if flags.save_result or flags.save_detailed or flags.append_result:
        _save(flags, result, done, requests)
    return 0 if result.completed else 1


def _tell_failures(outcomes: Sequence[Outcome]) -> None:
    """Say how many requests failed, and how; nothing if none did."""
    errors = collections.Counter(o.error for o in outcomes if o.error is not None)
    if errors.total() == len(outcomes):
        say(f"all {len(outcomes)} requests failed:")
    for error, count_ in errors.most_common(_MOST_ERRORS):
        say(f"failed, {count_} times: {error}")


async def _run(flags: argparse.Namespace) -> tuple[LoadRun, list[BenchRequest]]:
    async with open_target(flags) as (target, requests, warmups):
        times = schedule(flags, requests)
        await _prepare(flags, target, warmups)
        before = await _programs_of(target)
        bar = tqdm(total=len(requests), disable=flags.disable_tqdm, dynamic_ncols=True)
        with bar:
            done = await run_load(
                target,
                requests,
                times,
                max_concurrency=flags.max_concurrency,
                on_done=lambda _: bar.update(),
            )
        compiled = await _programs_of(target) - before
    if compiled:
        say(about_programs(compiled))
    return done, requests


async def _programs_of(target: Target) -> int:
    """Return what an engine has compiled; servers do not tell."""
    return await target.count_programs() if isinstance(target, EngineTarget) else 0


async def _prepare(
    flags: argparse.Namespace, target: Target, warmups: list[BenchRequest]
) -> None:
    """Wait for the server and let it warm up; nothing of it counts."""
    if flags.ready_check_timeout_sec:
        await wait_until_ready(target, warmups[0], flags.ready_check_timeout_sec)
    if flags.num_warmups:
        await run_load(
            target,
            warmups,
            [0.0] * len(warmups),
            max_concurrency=flags.max_concurrency,
        )


def _save(
    flags: argparse.Namespace,
    result: ServeResult,
    done: LoadRun,
    requests: list[BenchRequest],
) -> None:
    rate = flags.request_rate
    fields: dict[str, Any] = {
        "backend": flags.backend,
        "model_id": flags.model,
        "num_prompts": len(requests),
        "request_rate": "inf" if rate == float("inf") else rate,
        "offered_rate": _offered_rate(flags, requests),
        "burstiness": flags.burstiness,
        "max_concurrency": flags.max_concurrency,
        **dict(flags.metadata),
        **result.to_dict(),
    }
    if flags.save_detailed:
        fields |= detailed(done.outcomes)
    path = pathlib.Path(flags.result_dir) / _file_name(flags)
    (append_result if flags.append_result else save_result)(path, fields)
    say(f"saved to {path}")


def _offered_rate(
    flags: argparse.Namespace, requests: list[BenchRequest]
) -> float | None:
    """Return requests per second as they were due; None if all came at once."""
    rate = offered_rate(schedule(flags, requests))
    return None if rate == float("inf") else rate


def _file_name(flags: argparse.Namespace) -> str:
    if flags.result_filename:
        return flags.result_filename
    name = f"{flags.backend}-{flags.request_rate:g}qps"
    if flags.append_result:  # to the file of the runs before
        return f"{name}.json"
    return f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
