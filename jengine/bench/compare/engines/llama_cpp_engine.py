"""llama.cpp for the worker of `jengine bench compare`, by llama-cpp-python.

Its high-level interface runs one sequence at a time, so that this drives the batches
itself: the prompts in chunks, then one token of every sequence a call. The Python that
runs it need not have jengine.
"""

import importlib
from typing import Any

_BATCH = 2048  # tokens of one call, llama.cpp's own default


def load(options: dict[str, Any]) -> "Engine":
    """Load the model; see `launch.EngineOptions`."""
    return Engine(options)


class Engine:
    """Greedy, without regard to the end of sequence."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Load the model, which must be a GGUF file."""
        if options["gguf"] is None:
            raise ValueError("llama.cpp reads GGUF files only: give --model FILE.gguf")
        self._lib: Any = importlib.import_module("llama_cpp")
        self._np: Any = importlib.import_module("numpy")
        self._lib.llama_backend_init()
        params = self._lib.llama_model_default_params()
        self._model = self._lib.llama_model_load_from_file(
            options["gguf"].encode(), params
        )
        if not self._model:
            raise ValueError(f"llama.cpp cannot load {options['gguf']}")
        self._context = self._new_context(options)
        vocab = self._lib.llama_model_get_vocab(self._model)
        self._vocab_size = self._lib.llama_vocab_n_tokens(vocab)
        self._batch = self._lib.llama_batch_init(_BATCH, 0, 1)

    def versions(self) -> dict[str, Any]:
        """Return the version of llama-cpp-python."""
        return {"version": self._lib.__version__, "versions": {}}

    def generate(self, prompts: list[list[int]], output_tokens: int) -> list[list[int]]:
        """Return so many new ids for each prompt."""
        lib = self._lib
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        tokens = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        found: list[list[int]] = [[] for _ in prompts]
        for start in range(0, len(tokens), _BATCH):
            self._run(tokens[start : start + _BATCH], found)
        for step in range(output_tokens - 1):
            self._run(
                [
                    (found[sequence][-1], len(prompt) + step, sequence, True)
                    for sequence, prompt in enumerate(prompts)
                ],
                found,
            )
        return found

    def _new_context(self, options: dict[str, Any]) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_seq_max = options["max_num_seqs"]
        params.n_ctx = options["max_num_seqs"] * options["max_model_len"]
        params.n_batch = _BATCH
        params.n_threads = params.n_threads_batch = options["threads"]
        params.type_k = params.type_v = self._lib.GGML_TYPE_F32
        for name, value in options["engine"].items():
            setattr(params, name, value)
        context = self._lib.llama_init_from_model(self._model, params)
        if not context:
            raise ValueError("llama.cpp cannot make a context")
        return context

    def _run(
        self, tokens: list[tuple[int, int, int, bool]], found: list[list[int]]
    ) -> None:
        """Run (token, position, sequence, draws) and append what is drawn."""
        batch, np = self._batch, self._np
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, draws) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = draws
        status = self._lib.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode failed with {status}")
        for i, (_, _, sequence, draws) in enumerate(tokens):
            if draws:
                logits = self._lib.llama_get_logits_ith(self._context, i)
                row = np.ctypeslib.as_array(logits, shape=(self._vocab_size,))
                found[sequence].append(int(row.argmax()))
