"""Commands run in this process, on engines that they share."""

import types

import pytest

from jengine import AsyncLLM, cli
from jengine.cli_bench import (
    latency_flags,
    roofline_flags,
    serve_target,
    sweep_flags,
    throughput_flags,
)
from jengine.cli_options import take_engine
from jengine.config import EngineConfig

MAKERS = (latency_flags, roofline_flags, serve_target, sweep_flags, throughput_flags)


@pytest.fixture(scope="session")
def shared_llm(make_llm, f2_dir):
    """An engine of the small checkpoint; its programs are compiled once."""
    return make_llm(f2_dir)


@pytest.fixture
def asked(monkeypatch, shared_llm, make_engine):
    """The options of the engines that commands asked for, which they all share."""
    options = []

    def make(flags, *, defaults=None, overrides=None, is_async=False):
        given = {**(defaults or {}), **take_engine(flags), **(overrides or {})}
        EngineConfig.from_options(flags.model, given)
        options.append(given)
        if not is_async:
            return shared_llm
        llm = AsyncLLM.from_engine(make_engine())
        # Longer than the engine itself allows, so that its refusals are seen.
        llm.config = types.SimpleNamespace(
            vocab_size=26,
            max_model_len=4000,
            asked=types.SimpleNamespace(model="letters"),
        )
        return llm

    for module in MAKERS:
        monkeypatch.setattr(module, "make_llm", make)
    return options


@pytest.fixture
def bench(asked):
    """Runs `jengine bench` and returns its exit status."""
    return lambda text: cli.main(["bench", *text.split()])
