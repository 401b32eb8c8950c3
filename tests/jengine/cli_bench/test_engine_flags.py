import argparse
import types

import pytest

from jengine import async_llm, llm
from jengine.cli_bench.engine_flags import add_model_flags, make_llm
from jengine.demo_model import DEMO_MODEL
from jengine.errors import ConfigError


def parse(text):
    parser = argparse.ArgumentParser()
    add_model_flags(parser)
    return parser.parse_args(text.split())


@pytest.fixture
def made(monkeypatch):
    def make(kind):
        return lambda model, **options: types.SimpleNamespace(
            kind=kind, model=model, options=options
        )

    monkeypatch.setattr(llm, "LLM", make("LLM"))
    monkeypatch.setattr(async_llm, "AsyncLLM", make("AsyncLLM"))


def test_flags_come_after_defaults_and_before_overrides(made):
    flags = parse("--model m --max-num-seqs 4 --block-size 32")
    found = make_llm(
        flags,
        defaults={"enable_prefix_caching": False, "block_size": 64},
        overrides={"max_num_seqs": 8},
    )
    assert (found.kind, found.model) == ("LLM", "m")
    assert found.options == {
        "enable_prefix_caching": False,
        "block_size": 32,
        "max_num_seqs": 8,
    }


def test_the_demo_model_by_default(made):
    found = make_llm(parse(""), is_async=True)
    assert (found.kind, found.model) == ("AsyncLLM", DEMO_MODEL)
    assert found.options == {}


def test_options_are_checked_before_a_model_is_loaded(made):
    with pytest.raises(ConfigError, match="block_size"):
        make_llm(parse(""), overrides={"block_size": 0})
