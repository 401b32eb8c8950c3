import importlib.util

import pytest

from jengine.aot import toolchain
from jengine.aot.toolchain import MissingToolError, explain, find_plugin, find_ptxas


def test_a_missing_plugin_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingToolError, match=r"pip install 'jengine\[aot\]'"):
        find_plugin()


def test_a_plugin_is_found_by_its_module(monkeypatch):
    def find_spec(name):
        if name == "jax_plugins.xla_cuda13":
            raise ModuleNotFoundError("no jax_plugins")
        return object()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert find_plugin() == "xla_cuda12"


def test_an_assembler_on_the_path_comes_first(monkeypatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: f"/opt/{name}")
    assert find_ptxas() == "/opt/ptxas"


def test_an_assembler_among_the_packages_is_found(monkeypatch, tmp_path):
    path = tmp_path / "nvidia" / "cu13" / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.write_text("")
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)
    monkeypatch.setattr(toolchain.sys, "path", ["", str(tmp_path)])
    assert find_ptxas() == str(path)


def test_a_missing_assembler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda _: None)
    monkeypatch.setattr(toolchain, "_candidates", list)
    with pytest.raises(MissingToolError, match=r"ptxas.*jengine\[aot\]"):
        find_ptxas()


def test_errors_of_the_compiler_become_one_line():
    assert explain(RuntimeError("one\n  two")) == "one two"
    assert explain(RuntimeError()) == "RuntimeError"
    missing = explain(RuntimeError("libdevice not found at ./libdevice.10.bc"))
    assert "pip install 'jengine[aot]'" in missing
    assert "\n" not in missing
