"""Text on the way in and out: tokenizer, chat template, detokenizer, stop strings.

- `tokenizer.load_tokenizer` finds a Hugging Face tokenizer; no other module loads one.
- `chat.render` turns a conversation into token ids.
- `detokenizer.IncrementalDetokenizer` turns tokens into text as they come.
- `stop.StopStrings` ends that text at a stop string.

Nothing here imports torch, jax or the engine.
"""
