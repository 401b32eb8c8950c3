"""What people see of outputs, plans, statistics and the KV pool, and pictures of runs.

    from jengine.display import block_map, record, timeline

    with record(llm) as recorder:
        llm.generate(prompts)
    timeline(recorder.run)

`sheets` says what is shown, `sheet` how, as text or HTML; `history` folds plans into
the state of the pool after each step; the pictures need matplotlib. Names load on first
use, so importing this package is cheap.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jengine.display.draw_blocks import block_map
    from jengine.display.draw_logprobs import logprob_map
    from jengine.display.draw_timeline import timeline
    from jengine.recording import RecordedRun, Recorder, record

_HOMES = {
    "RecordedRun": "jengine.recording",
    "Recorder": "jengine.recording",
    "block_map": "jengine.display.draw_blocks",
    "logprob_map": "jengine.display.draw_logprobs",
    "record": "jengine.recording",
    "timeline": "jengine.display.draw_timeline",
}

__all__ = [
    "RecordedRun",
    "Recorder",
    "block_map",
    "logprob_map",
    "record",
    "timeline",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
