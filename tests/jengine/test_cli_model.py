import argparse

import pytest

from jengine import cli_model
from jengine.demo_model import DEMO_MODEL
from jengine.errors import ConfigError, SamplingParamsError
from jengine.sampling_params import RequestOutputKind, SamplingParams


class FakeLLM:
    def get_default_sampling_params(self):
        return SamplingParams(temperature=0.5, top_k=7)


@pytest.fixture
def asked(monkeypatch):
    """The models that were loaded, with their options."""
    calls = []

    def load(model, options):
        calls.append((model, options))
        return FakeLLM()

    monkeypatch.setattr(cli_model, "_load", load)
    return calls


def test_flags_are_laid_over_what_the_checkpoint_proposes(asked, capsys):
    _, params = cli_model.load("m", {"top_k": 3}, {"block_size": 8})
    assert (params.temperature, params.top_k) == (0.5, 3)
    assert params.output_kind is RequestOutputKind.DELTA
    assert asked == [("m", {"block_size": 8})]
    assert capsys.readouterr().err == ""


def test_without_a_model_it_is_the_demo_model(asked, capsys):
    cli_model.load(None, {}, {})
    assert asked == [(DEMO_MODEL, {})]
    assert "no --model given" in capsys.readouterr().err


def test_bad_flags_are_refused_before_anything_is_loaded(asked):
    with pytest.raises(SamplingParamsError, match="top_p is 0"):
        cli_model.load("m", {"top_p": 0}, {})
    with pytest.raises(ConfigError, match="block_size is 0"):
        cli_model.load("m", {}, {"block_size": 0})
    assert asked == []


def test_the_flag_shares_its_group():
    parser = argparse.ArgumentParser()
    cli_model.add_model_flag(parser).add_argument("--more")
    flags = parser.parse_args(["--model", "m", "--more", "x"])
    assert (flags.model, flags.more) == ("m", "x")
