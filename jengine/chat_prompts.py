"""Conversations as prompts: what every front door does with messages.

`text.chat` renders; this module knows which template counts and what the engine takes.
"""

from collections.abc import Mapping
from typing import Any, no_type_check

from jengine.errors import InvalidValueError, PromptError
from jengine.prompts import ParsedPrompt
from jengine.text.chat import CONTENT_FORMATS, read_chat_template, render_text
from jengine.text.tokenizer import Tokenizer


class ChatPrompts:
    """Writes conversations out with a model's template, or with one that is given."""

    def __init__(self, tokenizer: Tokenizer | None, chat_template: str | None) -> None:
        """Make a writer.

        Args:
          tokenizer: encodes the text; brings the template if no other is given.
          chat_template: the engine's own template, as text or as a file's path.

        Raises:
          ChatTemplateError: it looks like a path and there is no such file.
        """
        self._tokenizer = tokenizer
        self._template = chat_template and read_chat_template(chat_template)

    @no_type_check  # the messages are checked, and more is said about them, elsewhere
    def render(
        self,
        messages: Any,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template_content_format: str = "auto",
    ) -> ParsedPrompt:
        """Return the prompt of one conversation, both as text and as ids.

        Args:
          messages: the conversation, a list of messages.
          chat_template: another template, as text or as a file's path.
          add_generation_prompt: whether to open the assistant's turn.
          continue_final_message: whether to go on with the last message instead.
          tools: functions that the template may offer to the model.
          chat_template_kwargs: further variables for the template.
          chat_template_content_format: what the template gets as contents:
            "string", "openai" (lists of parts), or "auto", by what it takes.

        Raises:
          ChatTemplateError: the conversation cannot be written out.
          PromptError: there is no tokenizer.
        """
        if chat_template_content_format not in CONTENT_FORMATS:
            raise InvalidValueError(
                "chat_template_content_format",
                chat_template_content_format,
                " or ".join(map(repr, CONTENT_FORMATS)),
            )
        _check_kind("chat_template", chat_template, str, "a text")
        _check_kind("chat_template_kwargs", chat_template_kwargs, Mapping, "a dict")
        tokenizer = self._tokenizer
        if tokenizer is None:
            raise PromptError("messages", messages, "nothing without a tokenizer")
        template = self._template
        if chat_template is not None:
            template = read_chat_template(chat_template)
        text = render_text(
            tokenizer,
            messages,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            template_kwargs=chat_template_kwargs,
            content_format=chat_template_content_format,
        )
        ids = tokenizer.encode(text, add_special_tokens=False)
        return ParsedPrompt(text, tuple(ids))


def _check_kind(field: str, value: object, kind: type, words: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise InvalidValueError(field, value, f"{words}, or None")
