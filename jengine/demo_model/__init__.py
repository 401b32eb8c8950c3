"""The model that ships with jengine: a small Llama that tells short stories.

The checkpoint lies in this folder, in Hugging Face layout; its README.md is the model
card. It is what `LLM()` and `jengine generate` use when no model is named.
"""

from pathlib import Path

DEMO_MODEL = str(Path(__file__).parent)
"""Folder of the checkpoint."""
