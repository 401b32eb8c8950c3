"""The cards: complete, findable, and described in a way that XLA can read."""

import json
import re

import pytest

from jengine.aot.targets import find_target, target_config_text, target_names
from jengine.errors import ConfigError

# Data sheets: SMs, GB, TB/s, dense bfloat16 TFLOP/s.
SHEETS = {
    "h200": (132, 141, 4.8, 989),
    "h100": (132, 80, 3.35, 989),
    "a100-80g": (108, 80, 2.04, 312),
    "a100-40g": (108, 40, 1.555, 312),
    "l4": (58, 24, 0.3, 121),
    "l40s": (142, 48, 0.864, 362),
    "rtx4090": (128, 24, 1.008, 165),
}


@pytest.mark.parametrize("name", SHEETS)
def test_figures_are_those_of_the_data_sheet(name):
    target = find_target(name)
    sms, gigabytes, bandwidth, tflops = SHEETS[name]
    assert target.num_sms == sms
    assert target.memory_bandwidth == pytest.approx(bandwidth * 1e12, rel=0.01)
    assert target.bf16_tflops == pytest.approx(tflops, rel=0.01)
    # Sheets name a little more or less than what is left to programs.
    assert 0.9 <= target.memory_bytes / (gigabytes * 1e9) <= 1.08


@pytest.mark.parametrize("name", target_names())
def test_every_name_is_a_card(name):
    target = find_target(name.upper())
    assert target.compute_capability >= (8, 0)
    assert target.flops_per_s == target.bf16_tflops * 1e12
    assert target.shared_memory_per_block_optin < target.shared_memory_per_core


def test_aliases_are_the_same_card():
    assert find_target("a100") == find_target("a100-80g")


@pytest.mark.parametrize(
    ("name", "architecture"), [("h200", "sm_90"), ("a100", "sm_80"), ("l4", "sm_89")]
)
def test_the_architecture_is_named_as_kernels_know_it(name, architecture):
    assert find_target(name).architecture == architecture


def test_an_unknown_card_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"target is 'tpu'; allowed: .*h200"):
        find_target("tpu")


def test_the_description_is_text_proto():
    text = target_config_text(find_target("h200"))
    assert "core_count: 132\n" in text
    assert "device_memory_size: 151397597184\n" in text
    assert "feature_extension: ACCELERATED_FEATURES" in text
    assert 'device_description_str: "NVIDIA H200"' in text
    assert text.count("{") == text.count("}")
    fields = re.findall(r"^ +(\w+): (.+)$", text, re.MULTILINE)
    assert len(fields) == len(dict(fields)) > 20
    for _, value in fields:
        json.loads(value)  # numbers and quoted strings


def test_older_cards_have_no_features_of_one_architecture():
    assert "feature_extension: NONE" in target_config_text(find_target("a100"))
