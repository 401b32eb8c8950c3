"""`LLM`: the offline front door; prompts in, outputs out in their order."""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, no_type_check

from jengine.assembly import assemble
from jengine.call_arguments import explain_missing, refuse_unbuilt, whole
from jengine.chat_prompts import ChatPrompts
from jengine.config import EngineConfig
from jengine.core.stats import SchedulerStats
from jengine.demo_model import DEMO_MODEL
from jengine.errors import InvalidValueError
from jengine.metrics import Metric
from jengine.offline_loop import AskedRequest, OfflineLoop, Stream
from jengine.outputs import RequestOutput
from jengine.progress import Progress
from jengine.prompts import ParsedPrompt, parse_prompt, parse_prompts, tokenize_as
from jengine.sampling_params import RequestOutputKind, SamplingParams

# vLLM's methods that have no meaning here or are not built; asking says so.
_UNBUILT_METHODS = frozenset(
    {
        "apply_model", "beam_search", "classify", "collective_rpc", "embed", "encode",
        "enqueue", "enqueue_chat", "get_world_size", "release_kv_cache_memory",
        "reset_mm_cache", "reward", "score", "sleep", "start_profile", "stop_profile",
        "wait_for_completion", "wake_up",
    }
)  # fmt: skip


class LLM:
    """A model ready to generate, with vLLM's interface.

    >>> llm = LLM()
    >>> params = SamplingParams(temperature=0, max_tokens=4)
    >>> output, = llm.generate("Once upon a", params, use_tqdm=False)
    >>> output.outputs[0].text
    ' time, there was'

    Threads may share it: their calls take turns, and so do the steps of their streams.

    Attributes:
      llm_engine: the engine, for those who step it themselves.
    """

    def __init__(self, model: Any = DEMO_MODEL, **options: Any) -> None:
        """Load a model.

        Args:
          model: folder or .gguf file of a checkpoint, or its name on the hub; left
            out it is the demo model that ships with jengine.
          **options: see `EngineConfig`.

        Raises:
          ConfigError: an option is unknown or not allowed.
          CheckpointError: the checkpoint cannot be used.
          UnsupportedError: jengine cannot do what is asked yet.
        """
        config = EngineConfig.from_options(model, options)
        self.llm_engine, self.config, self._generation_config = assemble(config)
        self._chats = ChatPrompts(self.llm_engine.tokenizer, config.chat_template)
        self._loop = OfflineLoop(self.llm_engine)

    def __getattr__(self, name: str) -> Any:
        """Explain the methods of vLLM that are missing."""
        raise explain_missing("LLM", name, _UNBUILT_METHODS)

    @property
    def stats(self) -> SchedulerStats:
        """What has been scheduled, cached and preempted, and what is in use now."""
        return self.llm_engine.stats

    def get_metrics(self) -> list[Metric]:
        """Return counters, gauges and histograms under vLLM's names.

        `jengine.metrics.to_prometheus` makes text for Prometheus of them.
        """
        return self.llm_engine.get_metrics(self.config.asked.model)

    @no_type_check  # it checks its arguments, and says more than a type checker would
    def generate(
        self,
        prompts: Any = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: int | Sequence[int] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **unbuilt: None,
    ) -> list[RequestOutput]:
        """Complete prompts.

        Everything is checked before anything runs. If the call breaks off, its
        requests are gone and the engine can be used again.

        Args:
          prompts: text, token ids or a dict with either; one, or a list of them.
          sampling_params: for all prompts, or one for each; None takes the model's
            own defaults.
          use_tqdm: whether to show progress, or what to show it with.
          priority: of all prompts, or of each, under the priority policy; smaller is
            sooner.
          tokenization_kwargs: `{"add_special_tokens": False}` for text that holds its
            special tokens already, such as a BOS that a chat template wrote.
          **unbuilt: vLLM's other arguments; only None.

        Returns:
          One output for each prompt, in their order.

        Raises:
          PromptError: a prompt cannot be run.
          SamplingParamsError: parameters do not suit the model.
          InvalidValueError: lists of different lengths.
        """
        refuse_unbuilt(self.generate, unbuilt)
        parsed = [
            tokenize_as(prompt, tokenization_kwargs)
            for prompt in parse_prompts(prompts)
        ]
        names = [f"prompts[{i}]" for i in range(len(parsed))]
        if len(names) == 1:
            names = ["prompt"]
        return self._run(parsed, names, sampling_params, priority, use_tqdm)

    @no_type_check
    def chat(  # noqa: PLR0913 - as in vLLM
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        chat_template: str | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template_content_format: str = "auto",
        **unbuilt: None,
    ) -> list[RequestOutput]:
        """Answer conversations, written out with the model's chat template.

        Args:
          messages: one conversation (a list of messages) or a list of them.
          sampling_params: as for `generate`.
          use_tqdm: as for `generate`.
          lora_request: as in vLLM; only None.
          priority: as for `generate`.
          chat_template: another template, as text or as a file's path.
          add_generation_prompt: whether to open the assistant's turn.
          continue_final_message: whether to go on with the last message instead.
          tools: functions that the template may offer to the model.
          chat_template_kwargs: further variables for the template.
          chat_template_content_format: what the template gets as contents:
            "string", "openai" (lists of parts), or "auto", by what it takes.
          **unbuilt: vLLM's other arguments; only None.

        Raises:
          ChatTemplateError: the conversation cannot be written out.
        """
        refuse_unbuilt(self.chat, {"lora_request": lora_request, **unbuilt})
        render = functools.partial(
            self._chats.render,
            chat_template=chat_template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            chat_template_content_format=chat_template_content_format,
        )
        with self._loop.lock:  # from here on, for tokenizers are for one thread, too
            prompts = [render(one) for one in _conversations(messages)]
            names = ["conversation"] * len(prompts)
            return self._run(prompts, names, sampling_params, priority, use_tqdm)

    @no_type_check
    def stream(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.DELTA,
        priority: int = 0,
    ) -> Stream:
        """Complete one prompt, output by output.

            for output in llm.stream("Once upon a time"):
                print(output.outputs[0].text, end="", flush=True)

        The prompt is checked and queued at once. Several streams may be read in turn,
        with calls of `generate` in between: all requests run together. Leaving a loop
        early ends the request, as soon as nothing refers to the stream; `close` ends it
        at once.

        Args:
          prompt: text, token ids or a dict with either.
          sampling_params: None takes the model's own defaults.
          output_kind: what each output holds, in place of what the params say: only
            what is new (the deltas add up to what `generate` returns), all so far, or
            one output at the end.
          priority: under the priority policy; smaller is sooner.

        Returns:
          An iterator.

        Raises:
          PromptError: the prompt cannot be run.
          SamplingParamsError: the parameters do not suit the model.
        """
        parsed = parse_prompt(prompt)
        return self._stream(parsed, sampling_params, output_kind, priority)

    @no_type_check
    def stream_chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | None = None,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.DELTA,
        priority: int = 0,
        **template_options: Any,
    ) -> Stream:
        """Answer one conversation, output by output.

        Args:
          messages: the conversation, a list of messages.
          sampling_params: as for `stream`.
          output_kind: as for `stream`.
          priority: as for `stream`.
          **template_options: as for `chat`, from `chat_template` on.

        Returns:
          An iterator.

        Raises:
          ChatTemplateError: the conversation cannot be written out.
        """
        with self._loop.lock:
            prompt = self._chats.render(messages, **template_options)
            return self._stream(prompt, sampling_params, output_kind, priority)

    def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer; None if none was loaded."""
        tokenizer = self.llm_engine.tokenizer
        return None if tokenizer is None else tokenizer.hf

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's generation config proposes."""
        return SamplingParams.from_generation_config(self._generation_config)

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forget all cached blocks; refused (False) while any request runs.

        Args:
          reset_running_requests: as in vLLM; only False.
          reset_connector: as in vLLM; only False.
        """
        refuse_unbuilt(
            self.reset_prefix_cache,
            {
                "reset_running_requests": reset_running_requests or None,
                "reset_connector": reset_connector or None,
            },
        )
        with self._loop.lock:
            return self.llm_engine.reset_prefix_cache()

    @no_type_check
    def _run(
        self,
        prompts: Sequence[ParsedPrompt],
        names: Sequence[str],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int] | None,
        use_tqdm: bool | Callable[..., Any],
    ) -> list[RequestOutput]:
        with self._loop.lock:
            params = self._params_for(sampling_params, len(prompts))
            requests = self._ask(prompts, names, params, priority)
            progress = Progress(use_tqdm, len(prompts))
            try:
                return self._loop.run(requests, progress.advance)
            finally:
                progress.close()

    @no_type_check
    def _ask(
        self,
        prompts: Sequence[ParsedPrompt],
        names: Sequence[str],
        params: Sequence[SamplingParams],
        priority: int | Sequence[int] | None,
    ) -> list[AskedRequest]:
        inputs = self.llm_engine.inputs
        token_ids = [
            inputs.tokenize(*one) for one in zip(prompts, params, names, strict=True)
        ]
        priorities = _priorities(priority, len(prompts))
        for one in priorities:
            inputs.check_priority(one)
        requests = zip(prompts, token_ids, params, priorities, strict=True)
        return [AskedRequest(*request) for request in requests]

    @no_type_check
    def _stream(
        self,
        prompt: ParsedPrompt,
        sampling_params: SamplingParams | None,
        output_kind: RequestOutputKind,
        priority: int,
    ) -> Stream:
        with self._loop.lock:
            params = self._params_for(sampling_params, 1, output_kind)
            (request,) = self._ask([prompt], ["prompt"], params, [priority])
            return self._loop.stream(request)

    @no_type_check
    def _params_for(
        self,
        given: SamplingParams | Sequence[SamplingParams] | None,
        count: int,
        kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY,
    ) -> list[SamplingParams]:
        """Return one checked set of parameters for each prompt."""
        if given is None:
            given = self.get_default_sampling_params()
        if isinstance(given, SamplingParams):
            given = [given] * count
        listed = _per_prompt("sampling_params", given, count, "a SamplingParams")
        for index, params in enumerate(listed):
            if not isinstance(params, SamplingParams):
                name = f"sampling_params[{index}]"
                raise InvalidValueError(name, params, "a SamplingParams")
        for params in {id(params): params for params in listed}.values():
            self.llm_engine.inputs.check_params(params)
        return [dataclasses.replace(params, output_kind=kind) for params in listed]


def _priorities(given: Any, count: int) -> list[Any]:
    if given is None:
        return [0] * count
    if isinstance(given, numbers.Integral):
        return [whole(given)] * count
    return [whole(p) for p in _per_prompt("priority", given, count, "an integer")]


def _per_prompt(name: str, values: Any, count: int, kind: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        allowed = f"{kind} for all prompts, or a list with one for each"
        raise InvalidValueError(name, values, allowed)
    listed = list(values)
    if len(listed) != count:
        raise InvalidValueError(
            f"the length of {name}", len(listed), f"{count}, one for each prompt"
        )
    return listed


def _conversations(messages: Any) -> list[Any]:
    """Tell a list of conversations from a single one, which is a list of dicts."""
    is_list = isinstance(messages, list | tuple)
    if is_list and messages and all(isinstance(m, list | tuple) for m in messages):
        return list(messages)
    return [messages]
