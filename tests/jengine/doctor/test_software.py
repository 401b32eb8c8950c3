import importlib.metadata
import pathlib
import re
import tomllib

import pytest

import jengine
from jengine.doctor.software import (
    FOR_SOME,
    NEEDED,
    OPTIONAL,
    find_software,
    installed_version,
)

VERSIONS = dict.fromkeys(NEEDED, "1.0") | {"jaxlib": "0.10.2"}


def found(**further):
    named = {name.replace("_", "-"): version for name, version in further.items()}
    return find_software((VERSIONS | named).get)


def test_what_is_installed_here():
    software = find_software()
    assert software.missing == []
    assert software.jax == importlib.metadata.version("jax")
    assert installed_version("no-such-package") is None
    assert set(software.optional) == set(OPTIONAL)


def test_the_needed_packages_are_the_dependencies():
    project = pathlib.Path(jengine.__file__).parent.parent / "pyproject.toml"
    if not project.is_file():
        pytest.skip("not a checkout")
    asked = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
    names = {re.split("[<>=]", line)[0] for line in asked}
    assert set(NEEDED) - {"jaxlib"} == names  # jaxlib comes with jax


def test_what_only_some_features_need_is_needed():
    assert set(FOR_SOME) < set(NEEDED)


def test_missing_packages():
    assert find_software({"jax": "1"}.get).missing == list(NEEDED[1:])


def test_plugins_have_the_version_of_jaxlib():
    good = found(jax_cuda12_plugin="0.10.2", libtpu="0.0.17")
    assert good.mismatched == {}
    assert good.plugins == {"jax-cuda12-plugin": "0.10.2", "libtpu": "0.0.17"}
    bad = found(jax_cuda13_plugin="0.9.0", jax_cuda13_pjrt="0.10.2")
    assert bad.mismatched == {"jax-cuda13-plugin": "0.9.0"}
    assert (good.cuda_majors, bad.cuda_majors) == ([12], [13])
