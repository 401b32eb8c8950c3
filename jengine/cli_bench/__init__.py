"""`jengine bench`: flags of its commands; the measuring is in `jengine.bench`."""

from jengine.cli_bench.commands import add_bench_command, run_bench

__all__ = ["add_bench_command", "run_bench"]
