"""Arguments that the methods do not have: vLLM's other ones, its older ones, typos.

Each is refused with what to pass instead; so are whole methods. Standard library only.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from jengine.errors import InvalidValueError, UnsupportedError, shorten
from jengine.field_rules import as_integer
from jengine.sampling_params import SamplingParams

_NOT_BUILT = frozenset(
    {
        "data_parallel_rank", "kv_hints", "lora_request", "mm_processor_kwargs",
        "multi_modal_data", "prompt_adapter_request", "reasoning_ended",
        "reasoning_parser_kwargs", "reset_connector", "reset_running_requests",
        "session_id", "tokenization_kwargs", "trace_headers",
    }
)  # fmt: skip
_SAMPLING = frozenset(field.name for field in dataclasses.fields(SamplingParams))
_FIRST = ("prompts", "prompt", "messages")  # what is completed
_PARAMS = ("sampling_params", "params")


class UnbuiltMethodError(UnsupportedError, AttributeError):
    """A method of vLLM's that jengine does not have; `hasattr` answers no."""


def explain_missing(
    owner: str, name: str, unbuilt: Container[str]
) -> UnbuiltMethodError | AttributeError:
    """Return the error for an attribute that a class does not have.

    Args:
      owner: name of the class.
      name: of the attribute.
      unbuilt: vLLM's methods that have no meaning here or are not built.
    """
    if name in unbuilt:
        return UnbuiltMethodError(
            f"{owner}.{name} is not supported; use generate or chat"
        )
    return AttributeError(f"{owner} has no attribute {name!r}")


def whole(value: Any) -> Any:
    """Return an integer of any kind, numpy's too, as an int; the rest as it is."""
    try:
        return as_integer(value)
    except TypeError:
        return value


def refuse_unbuilt(method: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Refuse arguments that a method does not have, unless they ask for nothing.

    Args:
      method: was called.
      given: the arguments that it does not know by name.

    Raises:
      UnsupportedError: one of vLLM's, now or in older versions, is not None.
      InvalidValueError: an unknown one is not None.
    """
    for name, value in given.items():
        if value is not None:
            raise _refusal(method, name, value)


def _refusal(
    method: Callable[..., Any], name: str, value: object
) -> UnsupportedError | InvalidValueError:
    own = [
        one.name
        for one in inspect.signature(method).parameters.values()
        if one.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    call = method.__name__
    instead = _instead(name, value, own)
    if instead is not None:
        return UnsupportedError(
            f"{call} has no argument {name}, which is {shorten(value)}; pass {instead}"
        )
    if name in _NOT_BUILT:
        return UnsupportedError(
            f"{name}={shorten(value)} is not supported; leave it out"
        )
    close = difflib.get_close_matches(name, own, n=1)
    hint = f"Did you mean {close[0]}?" if close else None
    allowed = f"the arguments of {call}, which are {', '.join(own)}"
    return InvalidValueError(name, value, allowed, hint)


def _instead(name: str, value: object, own: Iterable[str]) -> str | None:
    """Return what to pass in place of an older argument, or of a misplaced one."""
    first = next((one for one in own if one in _FIRST), "prompt")
    params = next((one for one in own if one in _PARAMS), "sampling_params")
    if name == "prompt_token_ids":
        dicts = '{"prompt_token_ids": ids}'
        return f"{first}=[{dicts}, ...]" if first == "prompts" else f"{first}={dicts}"
    if name == "inputs":
        return f"{first}=..."
    if name in ("guided_options_request", "guided_options"):
        structured = "structured_outputs=StructuredOutputsParams(...)"
        return f"{params}=SamplingParams({structured})"
    if name in _SAMPLING:
        return f"{params}=SamplingParams({name}={shorten(value)})"
    return None
