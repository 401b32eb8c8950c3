"""Turn a conversation into token ids with the model's chat template.

The template is rendered by transformers, in its sandbox. This module gives it messages
in the form that it takes (`messages` checks them first) and turns whatever goes wrong
inside a template into one kind of error. The template writes the special tokens, so
the tokenizer adds none: there is never a second BOS.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jengine.errors import ChatTemplateError
from jengine.text.content_forms import Render, fit_contents, prints_parts
from jengine.text.messages import join_text, normalise_messages, split_text
from jengine.text.tokenizer import Tokenizer

_RESERVED = (
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "max_length",
    "messages",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
)
CONTENT_FORMATS = ("auto", "string", "openai")


def render(  # noqa: PLR0913 - what vLLM lets its callers choose
    tokenizer: Tokenizer,
    messages: object,
    *,
    chat_template: str | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: object = None,
    template_kwargs: Mapping[str, Any] | None = None,
    content_format: str = "auto",
) -> list[int]:
    """Return the token ids of a conversation.

    Args:
      tokenizer: encodes the rendered text and brings the template.
      messages: list of mappings with "role" and "content", as OpenAI's interface has
        them. Text parts of a content list are joined by newlines unless the template
        takes lists.
      chat_template: a template to use instead, or the name of one of several.
      add_generation_prompt: whether to end with what opens the assistant's turn.
      continue_final_message: whether to leave the last message open, to be continued;
        excludes `add_generation_prompt`.
      tools: list of functions offered to the model, as JSON schemas or documented
        callables.
      template_kwargs: further variables of the template.
      content_format: what the template gets as contents: "string", "openai" (lists of
        parts), or "auto", which finds out what it takes.

    Raises:
      ChatTemplateError: if the messages are malformed, there is no template, or the
        template refuses them; then with the template's own message.
    """
    text = render_text(
        tokenizer,
        messages,
        chat_template=chat_template,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        tools=tools,
        template_kwargs=template_kwargs,
        content_format=content_format,
    )
    return tokenizer.encode(text, add_special_tokens=False)


def render_text(
    tokenizer: Tokenizer,
    messages: object,
    *,
    chat_template: str | None = None,
    tools: object = None,
    template_kwargs: Mapping[str, Any] | None = None,
    content_format: str = "auto",
    **options: bool,
) -> str:
    """Return the text of a conversation; arguments and errors are those of `render`."""
    _check_options(options, template_kwargs)
    offered = _check_tools(tools)
    normal = normalise_messages(messages)
    template = _find_template(tokenizer, chat_template, offered)
    variables = {"tools": offered, **(template_kwargs or {})}

    def probe(marked: list[dict[str, Any]]) -> str:
        return _apply(tokenizer, marked, template, **variables)

    fitted = _fit_contents(normal, template, content_format, probe)
    try:
        return _apply(tokenizer, fitted, template, **options, **variables)
    except Exception as error:  # a template is a program, anything can happen in it
        raise ChatTemplateError(
            f"the chat template refused the conversation: {_describe(error)}"
        ) from error


def read_chat_template(value: str) -> str:
    """Return a chat template given as such or as the path of a file that holds it.

    Raises:
      ChatTemplateError: if it looks like a path and there is no such file.
    """
    if "{" in value or "\n" in value:
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatTemplateError(
            f"chat_template {value!r} is neither a Jinja template (it has no '{{') nor "
            f"a file that can be read: {error}"
        ) from error


def _check_options(
    options: Mapping[str, bool], template_kwargs: Mapping[str, Any] | None
) -> None:
    if options.get("add_generation_prompt") and options.get("continue_final_message"):
        raise ChatTemplateError(
            "add_generation_prompt and continue_final_message exclude each other: pass "
            "add_generation_prompt=False to continue the last message"
        )
    taken = sorted(set(template_kwargs or ()) & set(_RESERVED))
    if taken:
        raise ChatTemplateError(
            f"chat_template_kwargs must not set {', '.join(taken)}: they have "
            "arguments of their own or are not variables of a template"
        )


def _check_tools(tools: object) -> list[Any] | None:
    """Return the tools as a list; none are None, which is what templates ask for."""
    if tools is None:
        return None
    if not isinstance(tools, list | tuple):
        raise ChatTemplateError(f"tools must be a list, not {type(tools).__name__}")
    return list(tools) or None


def _find_template(
    tokenizer: Tokenizer, chat_template: str | None, tools: list[Any] | None
) -> str:
    if chat_template is None and not getattr(tokenizer.hf, "chat_template", None):
        raise ChatTemplateError(
            "the tokenizer has no chat template: pass chat_template=..., or write the "
            "prompt yourself and call generate()"
        )
    try:
        return tokenizer.hf.get_chat_template(chat_template, tools)
    except ValueError as error:  # several templates, none of them the default
        raise ChatTemplateError(str(error)) from error


def _fit_contents(
    messages: list[dict[str, Any]], template: str, content_format: str, render: Render
) -> list[dict[str, Any]]:
    """Give contents the form, string or list of parts, that the template takes."""
    if content_format == "string":
        return join_text(messages)
    if content_format == "openai":
        _refuse_printing(split_text(messages), render)
        return split_text(messages)
    # To take a part apart a template has to name its "text"; most do not.
    return fit_contents(messages, render) if "text" in template else join_text(messages)


def _refuse_printing(messages: list[dict[str, Any]], render: Render) -> None:
    """Refuse lists of parts for a template that would print them as Python does."""
    if prints_parts(messages, render):
        raise ChatTemplateError(
            "the chat template takes no lists of parts, it would print them: leave"
            " chat_template_content_format at 'auto', or set it to 'string'"
        )


def _apply(
    tokenizer: Tokenizer, messages: list[dict[str, Any]], template: str, **options: Any
) -> str:
    return tokenizer.hf.apply_chat_template(
        messages, chat_template=template, tokenize=False, **options
    )


def _describe(error: Exception) -> str:
    line = getattr(error, "lineno", None)  # of a syntax error in the template
    where = "" if line is None else f" (line {line} of the template)"
    return f"{error or type(error).__name__}{where}"
