"""`AsyncLLM`: requests from coroutines, their outputs as async iterators."""

import asyncio
import contextlib
import functools
import uuid
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, no_type_check

from jengine.assembly import assemble
from jengine.async_stream import OutputStream, Reader, Switchboard
from jengine.call_arguments import explain_missing, refuse_unbuilt, whole
from jengine.chat_prompts import ChatPrompts
from jengine.config import EngineConfig, ResolvedConfig
from jengine.core.stats import SchedulerStats
from jengine.demo_model import DEMO_MODEL
from jengine.engine import LLMEngine
from jengine.engine_thread import EngineThread
from jengine.errors import InvalidValueError
from jengine.metrics import Metric
from jengine.outputs import RequestOutput
from jengine.sampling_params import RequestOutputKind, SamplingParams

# vLLM's methods that have no meaning here or are not built; asking says so.
_UNBUILT_METHODS = frozenset(
    {
        "add_lora", "collective_rpc", "do_log_stats", "encode", "is_paused",
        "is_sleeping", "is_tracing_enabled", "list_loras", "pause_generation",
        "pin_lora", "remove_lora", "reset_encoder_cache", "reset_mm_cache",
        "resume_generation", "scale_elastic_ep", "sleep", "start_profile",
        "stop_profile", "wait_for_requests_to_drain", "wake_up",
    }
)  # fmt: skip


class AsyncLLM:
    """A model that serves coroutines, with vLLM's interface.

        with AsyncLLM("path/to/checkpoint") as llm:
            async for output in llm.generate("Once", params):
                ...

    The engine runs on a thread of its own, for any number of event loops on any
    threads. What a request holds is freed when its iteration ends in any way.

    Attributes:
      config: what was decided; None for an engine that was made by somebody else.
    """

    config: ResolvedConfig | None

    def __init__(self, model: Any = DEMO_MODEL, **options: Any) -> None:
        """Load a model and start its thread.

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
        engine, self.config, generation_config = assemble(config)
        self._start(engine, generation_config, config.chat_template)

    @classmethod
    def from_engine(
        cls, engine: LLMEngine, generation_config: Mapping[str, Any] | None = None
    ) -> "AsyncLLM":
        """Start a thread for an engine that exists; nobody else may use it then.

        Args:
          engine: without requests.
          generation_config: the default sampling values.
        """
        llm = cls.__new__(cls)
        llm._start(engine, generation_config or {}, None)
        llm.config = None
        return llm

    def _start(
        self,
        engine: LLMEngine,
        generation_config: Mapping[str, Any],
        chat_template: str | None,
    ) -> None:
        self._tokenizer = engine.tokenizer
        self._generation_config = dict(generation_config)
        self._chats = ChatPrompts(engine.tokenizer, chat_template)
        self._switchboard = Switchboard()
        self._thread = EngineThread(engine, self._switchboard)
        self._stop = weakref.finalize(self, self._thread.stop)  # at exit, too

    def __getattr__(self, name: str) -> Any:
        """Explain the methods of vLLM that are missing."""
        raise explain_missing("AsyncLLM", name, _UNBUILT_METHODS)

    @property
    def is_running(self) -> bool:
        """Whether requests can still be served."""
        return self._thread.failure is None

    @property
    def errored(self) -> bool:
        """Whether the engine has failed or was shut down."""
        return not self.is_running

    def __enter__(self) -> "AsyncLLM":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut down."""
        self.shutdown()

    def shutdown(self) -> None:
        """End all requests and wait for the thread, for the length of a step at most.

        Whoever waits for an output gets an `EngineStoppedError`.
        """
        self._stop()

    @no_type_check  # the engine checks its arguments, and says more
    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        **unbuilt: None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Complete one prompt, output by output.

        The request is queued with the first output that is asked for, and aborted if
        the iteration is left before its end: by `break`, an error or a cancelled task.

        Args:
          prompt: text, token ids or a dict with either.
          sampling_params: its `output_kind` says what each output holds; None takes
            the model's own defaults.
          request_id: unique among live requests; None makes one up.
          priority: under the priority policy; smaller is sooner.
          **unbuilt: vLLM's other arguments; only None.

        Yields:
          Outputs. What came while the caller was busy is merged into one.

        Raises:
          PromptError: the prompt cannot be run.
          SamplingParamsError: the parameters do not suit the model.
          InvalidValueError: the id or the priority cannot be used.
          EngineStoppedError: the engine failed or was shut down.
        """
        refuse_unbuilt(self.generate, unbuilt)
        added = self._add(request_id, lambda: prompt, sampling_params, priority)
        with contextlib.closing(await added) as outputs:
            async for output in outputs:
                yield output

    @no_type_check
    async def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        **template_options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answer one conversation, output by output.

        Args:
          messages: the conversation, a list of messages.
          sampling_params: as for `generate`.
          request_id: as for `generate`.
          priority: as for `generate`.
          **template_options: as for `LLM.chat`, from `chat_template` on.

        Yields:
          Outputs, as `generate` does.

        Raises:
          ChatTemplateError: the conversation cannot be written out.
        """
        render = functools.partial(self._chats.render, messages, **template_options)

        def prompt() -> dict[str, Any]:
            rendered = render()
            return {"prompt": rendered.text, "prompt_token_ids": rendered.token_ids}

        added = self._add(request_id, prompt, sampling_params, priority)
        with contextlib.closing(await added) as outputs:
            async for output in outputs:
                yield output

    @no_type_check
    async def add_request(
        self,
        request_id: str | None,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        **unbuilt: None,
    ) -> OutputStream:
        """Queue a request at once; arguments and errors are those of `generate`.

        Returns:
          Its outputs to come. Unlike those of `generate` they go on when a reader is
          cancelled; they end the request when they are closed or dropped.
        """
        refuse_unbuilt(self.add_request, unbuilt)
        return await self._add(request_id, lambda: prompt, params, priority)

    async def abort(self, request_ids: str | Iterable[str]) -> None:
        """End requests; ids that are not live are ignored.

        Whoever reads them gets what there is, with the finish reason "abort".
        """
        ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        abort = functools.partial(self._switchboard.abort, request_ids=ids)
        await asyncio.wrap_future(self._thread.call(abort))

    async def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer; None if none was loaded."""
        return None if self._tokenizer is None else self._tokenizer.hf

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's generation config proposes."""
        return SamplingParams.from_generation_config(self._generation_config)

    async def get_metrics(self) -> list[Metric]:
        """Return counters, gauges and histograms; see `LLM.get_metrics`."""
        name = "" if self.config is None else self.config.asked.model
        call = self._thread.call(lambda engine: engine.get_metrics(name))
        return await asyncio.wrap_future(call)

    async def get_stats(self) -> SchedulerStats:
        """Return what has been scheduled, cached and preempted, and what is in use."""
        return await asyncio.wrap_future(self._thread.call(lambda engine: engine.stats))

    async def reset_prefix_cache(
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
        reset = self._thread.call(lambda engine: engine.reset_prefix_cache())
        return await asyncio.wrap_future(reset)

    async def check_health(self) -> None:
        """Raise an `EngineStoppedError` if no request can be served any more."""
        await asyncio.wrap_future(self._thread.call(lambda _: None))

    @no_type_check
    async def _add(
        self,
        request_id: str | None,
        make_prompt: Callable[[], Any],
        params: SamplingParams | None,
        priority: int,
    ) -> OutputStream:
        """Queue a request; its prompt is made on the engine's thread.

        There, because tokenizers are not for several threads at a time either.
        """
        if params is None:
            params = self.get_default_sampling_params()
        if not isinstance(params, SamplingParams):
            raise InvalidValueError("sampling_params", params, "a SamplingParams")
        if request_id is None:
            request_id = uuid.uuid4().hex
        if not isinstance(request_id, str):
            raise InvalidValueError("request_id", request_id, "a non-empty string")
        is_delta = params.output_kind is RequestOutputKind.DELTA
        stream = OutputStream(request_id, has_deltas=is_delta)
        reader = Reader(asyncio.get_running_loop(), weakref.ref(stream))
        switchboard = self._switchboard

        def add(engine: LLMEngine) -> None:
            engine.add_request(
                request_id, make_prompt(), params, priority=whole(priority)
            )
            switchboard.connect(request_id, reader)

        release = functools.partial(
            switchboard.release, request_id=request_id, reader=reader
        )
        stream.ends_with(functools.partial(self._thread.call, release))
        try:
            await asyncio.wrap_future(self._thread.call(add))
        except BaseException:
            stream.close()  # it may have been added all the same
            raise
        return stream
