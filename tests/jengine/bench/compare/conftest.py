"""Engines without a model, run by the real worker in real processes."""

import textwrap

import pytest

from jengine.bench.compare import backend_process

# Their Python file is all that tells engines apart.
ENGINES = {
    "doubling": """
        class Engine:
            def __init__(self, options):
                self.options = options

            def versions(self):
                return {"version": "2.0", "versions": {"helper": "1"}}

            def generate(self, prompts, output_tokens):
                print("to stdout, which is no answer")
                return [[2 * prompt[0]] * output_tokens for prompt in prompts]

        load = Engine
    """,
    "missing": """
        import a_module_that_nobody_has
    """,
    "dying": """
        import os
        import sys

        def load(options):
            sys.stderr.write("about to die")
            sys.stderr.flush()
            os._exit(7)
    """,
    "sleeping": """
        import time

        def load(options):
            time.sleep(3600)
    """,
    "short": """
        class Engine:
            def __init__(self, options):
                pass

            def versions(self):
                return {"version": "0.1", "versions": {}}

            def generate(self, prompts, output_tokens):
                return [[1] for _ in prompts]

        load = Engine
    """,
}


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """A folder of engines in place of the real ones."""
    folder = tmp_path / "engines"
    folder.mkdir()
    for name, code in ENGINES.items():
        (folder / f"{name}_engine.py").write_text(textwrap.dedent(code))
    monkeypatch.setattr(backend_process, "ENGINES", folder)
    return folder
