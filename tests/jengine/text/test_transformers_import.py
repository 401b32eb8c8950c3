"""transformers comes up without a word about torch, and with all its others."""

import logging
import subprocess
import sys

from jengine.text.transformers_import import import_transformers

REMARK = "PyTorch was not found. Models won't be available"


def test_it_is_transformers() -> None:
    assert import_transformers().__name__ == "transformers"


def test_the_remark_is_not_printed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from jengine.text.transformers_import import import_transformers as go\n"
        "go().AutoTokenizer"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "PyTorch" not in done.stderr


def test_later_messages_pass() -> None:
    logger = logging.getLogger("transformers")
    import_transformers()
    record = logger.makeRecord("x", logging.WARNING, "x", 1, REMARK, (), None)
    assert logger.filter(record)
