"""Conversations become the ids that transformers makes of them, or a clear error."""

import json
from typing import Any

import pytest

from jengine.errors import ChatTemplateError
from jengine.testing.toy_tokenizers import CHAT_TEMPLATE
from jengine.text.chat import read_chat_template, render, render_text
from jengine.text.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "hello"}]
PLAIN = "{% for m in messages %}{{ m['role'] + ':' + m['content'] + ';' }}{% endfor %}"
PARTS = (
    "{% for m in messages %}{{ m.role }}:"
    "{% for part in m.content %}{{ '[' + part.text + ']' }}{% endfor %};{% endfor %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}:"
    "{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}{{ '[' + part['text'] + ']' }}{% endfor %}"
    "{% endif %};{% endfor %}"
)
HERMES = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
    "{% for call in m.tool_calls or [] %}"
    "{{ call.function.name + '(' + (call.function.arguments | tojson) + ')' }}"
    "{% endfor %}{% endfor %}"
)
PICKY = (
    "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


def oracle(tokenizer: Tokenizer, messages: Any, **options: Any) -> list[int]:
    """What transformers itself makes of a conversation."""
    options = {"add_generation_prompt": True} | options
    return tokenizer.hf.apply_chat_template(messages, return_dict=False, **options)


class TestDoubleBos:
    def test_cht_01_template_writes_bos(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        ids = render(sentencepiece_tokenizer, HELLO)
        assert ids == oracle(sentencepiece_tokenizer, HELLO)
        assert ids.count(sentencepiece_tokenizer.hf.bos_token_id) == 1

    def test_cht_01_template_writes_none(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        ids = render(sentencepiece_tokenizer, HELLO, chat_template=PLAIN)
        assert ids == oracle(sentencepiece_tokenizer, HELLO, chat_template=PLAIN)
        assert sentencepiece_tokenizer.hf.bos_token_id not in ids

    def test_cht_01_plain_text_has_the_tokenizers_own(
        self, sentencepiece_tokenizer: Tokenizer
    ) -> None:
        assert sentencepiece_tokenizer.encode("hello")[0] == 1
        assert 1 not in sentencepiece_tokenizer.encode("hello", False)


class TestToolCalls:
    def messages(self, *arguments: Any) -> list[dict[str, Any]]:
        functions = [{"name": "f", "arguments": given} for given in arguments]
        calls = [
            {"id": f"c{i}", "type": "function", "function": function}
            for i, function in enumerate(functions)
        ]
        return [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c0", "content": "22"},
        ]

    @pytest.mark.parametrize(
        ("given", "parsed"),
        [
            ('{"city": "X", "n": [1, 2]}', {"city": "X", "n": [1, 2]}),
            ("", {}),
            ("{}", {}),
            (None, {}),
            ({"city": "X"}, {"city": "X"}),
        ],
    )
    def test_cht_02_arguments(
        self, byte_tokenizer: Tokenizer, given: Any, parsed: dict[str, Any]
    ) -> None:
        normal = self.messages(parsed, {"second": "call"})
        normal[1]["content"] = ""
        sent = self.messages(given, json.dumps({"second": "call"}))
        tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        ids = render(byte_tokenizer, sent, chat_template=HERMES, tools=tools)
        assert ids == oracle(byte_tokenizer, normal, chat_template=HERMES, tools=tools)
        assert f"f({json.dumps(parsed)})" in byte_tokenizer.decode(ids)

    @pytest.mark.parametrize("arguments", ["{city:", "[1]", "3", '"x"', 3])
    def test_cht_02_arguments_that_are_no_object(
        self, byte_tokenizer: Tokenizer, arguments: Any
    ) -> None:
        with pytest.raises(ChatTemplateError, match=r"messages\[1\].*arguments"):
            render(byte_tokenizer, self.messages(arguments), chat_template=HERMES)

    def test_cht_02_what_the_caller_passed_is_not_changed(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        messages = self.messages('{"a": 1}')
        before = json.dumps(messages)
        render(byte_tokenizer, messages, chat_template=HERMES)
        assert json.dumps(messages) == before

    def test_cht_02_no_tools_is_none(self, byte_tokenizer: Tokenizer) -> None:
        template = "{{ tools is none }}"
        for tools in (None, []):
            text = render_text(
                byte_tokenizer, HELLO, chat_template=template, tools=tools
            )
            assert text == "True"

    def test_tools_of_a_wrong_type(self, byte_tokenizer: Tokenizer) -> None:
        with pytest.raises(ChatTemplateError, match="tools must be a list, not dict"):
            render(byte_tokenizer, HELLO, tools={"a": 1})


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


class TestContentParts:
    @pytest.mark.parametrize(
        ("parts", "string"),
        [
            ([text_part("A")], "A"),
            ([text_part("A"), text_part("B")], "A\nB"),
            (["A", "B"], "A\nB"),
            ([], ""),
        ],
    )
    def test_cht_03_joined_for_a_template_of_strings(
        self, byte_tokenizer: Tokenizer, parts: list[Any], string: str
    ) -> None:
        # Also a template that would print a list, and one that mentions text.
        printing = "{% for m in messages %}{{ m.content }}{# text #}{% endfor %}"
        for template in (PLAIN, printing, CHAT_TEMPLATE):
            given = render(byte_tokenizer, user(parts), chat_template=template)
            assert given == render(byte_tokenizer, user(string), chat_template=template)
            assert given == oracle(byte_tokenizer, user(string), chat_template=template)

    @pytest.mark.parametrize("template", [PARTS, EITHER])
    def test_cht_03_passed_through_to_a_template_of_lists(
        self, byte_tokenizer: Tokenizer, template: str
    ) -> None:
        parts = user([text_part("A"), text_part("B")])
        text = render_text(byte_tokenizer, parts, chat_template=template)
        assert text == "user:[A][B];"

    @pytest.mark.parametrize(
        ("template", "expected"), [(PARTS, "user:[A];"), (EITHER, "user:A;")]
    )
    def test_cht_03_strings_for_a_template_of_lists(
        self, byte_tokenizer: Tokenizer, template: str, expected: str
    ) -> None:
        text = render_text(byte_tokenizer, user("A"), chat_template=template)
        assert text == expected

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "image_url", "image_url": {"url": "x"}},
            {"type": "rubbish"},
            {"text": "no type"},
            {"type": "text"},
            {"type": "text", "text": None},
            7,
        ],
    )
    def test_cht_03_other_parts_are_refused(
        self, byte_tokenizer: Tokenizer, part: Any
    ) -> None:
        for template in (PLAIN, PARTS):
            with pytest.raises(ChatTemplateError, match=r"messages\[0\]\['content'\]"):
                render(
                    byte_tokenizer,
                    user([text_part("A"), part]),
                    chat_template=template,
                )

    @pytest.mark.parametrize("content", ["A", [text_part("A")]], ids=repr)
    @pytest.mark.parametrize(
        ("content_format", "shown"), [("string", "s1"), ("openai", "l1")]
    )
    def test_cht_03_the_caller_may_choose_the_form(
        self, byte_tokenizer: Tokenizer, content: Any, content_format: str, shown: str
    ) -> None:
        kind = "{{ 's' if messages[0].content is string else 'l' }}"
        text = render_text(
            byte_tokenizer,
            user(content),
            chat_template=kind + "{{ messages[0].content | length }}",
            content_format=content_format,
        )
        assert text == shown

    @pytest.mark.parametrize("printed", ["m.content", "m.content | tojson"])
    def test_cht_03_lists_are_not_printed_where_they_were_asked_for(
        self, byte_tokenizer: Tokenizer, printed: str
    ) -> None:
        template = f"{{% for m in messages %}}{{{{ {printed} }}}};{{% endfor %}}"

        def shown(form: str) -> str:
            return render_text(
                byte_tokenizer, HELLO, chat_template=template, content_format=form
            )

        with pytest.raises(ChatTemplateError, match="takes no lists of parts"):
            shown("openai")
        assert shown("auto") == shown("string")
        assert "hello" in shown("auto")
        assert "type" not in shown("auto")

    @pytest.mark.checkpoint
    def test_cht_03_real_template(self, smollm2_tokenizer: Tokenizer) -> None:
        given = render(smollm2_tokenizer, user([text_part("A")]))
        assert given == oracle(smollm2_tokenizer, user("A"))
        given = render(smollm2_tokenizer, user([text_part("A"), text_part("B")]))
        assert given == oracle(smollm2_tokenizer, user("A\nB"))


class TestTemplateRefuses:
    @pytest.mark.parametrize(
        ("messages", "message"),
        [
            ([{"role": "system", "content": "x"}, *HELLO], "System role not supported"),
            ([*HELLO, *HELLO], "Roles must alternate"),
        ],
    )
    def test_cht_04_with_the_templates_message(
        self, byte_tokenizer: Tokenizer, messages: list[Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            render(byte_tokenizer, messages, chat_template=PICKY)
        assert isinstance(caught.value, ChatTemplateError)
        assert render(byte_tokenizer, HELLO, chat_template=PICKY)  # works again

    def test_cht_04_no_template(
        self, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(byte_tokenizer.hf, "chat_template", None)
        with pytest.raises(ChatTemplateError, match="has no chat template: pass"):
            render(byte_tokenizer, HELLO)
        assert render_text(byte_tokenizer, HELLO, chat_template=PLAIN) == "user:hello;"

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{% for m in messages %}", "line 1 of the template"),
            ("{{ nothing.at.all }}", "undefined"),
            ("{{ 1 / 0 }}", "division by zero"),
            ("{{ messages + 1 }}", "list"),
            ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ],
    )
    def test_cht_04_broken_templates(
        self, byte_tokenizer: Tokenizer, template: str, message: str
    ) -> None:
        with pytest.raises(ChatTemplateError, match=message):
            render(byte_tokenizer, HELLO, chat_template=template)

    @pytest.mark.parametrize(
        ("messages", "message"),
        [
            ([], "messages is empty"),
            ("hello", "must be a list of messages, not str"),
            (None, "must be a list of messages, not NoneType"),
            ({"role": "user", "content": "x"}, "must be a list of messages, not dict"),
            (["hello"], r"messages\[0\] must be a mapping"),
            ([*HELLO, {"content": "x"}], r"messages\[1\]\['role'\]"),
            ([{"role": 3, "content": "x"}], "found 3"),
            ([{"role": "user"}], r"messages\[0\] has no 'content'"),
            (user(3), "must be a text or a list of parts, not int"),
            ([{"role": "a", "content": "", "tool_calls": "x"}], "tool_calls"),
            ([{"role": "a", "tool_calls": [{"id": "1"}]}], "with a 'function'"),
        ],
    )
    def test_cht_04_malformed_messages(
        self, byte_tokenizer: Tokenizer, messages: Any, message: str
    ) -> None:
        with pytest.raises(ChatTemplateError, match=message):
            render(byte_tokenizer, messages)

    def test_cht_04_an_unknown_role_is_left_to_the_template(
        self, byte_tokenizer: Tokenizer
    ) -> None:
        messages = [{"role": "xyz", "content": "x"}]
        assert render(byte_tokenizer, messages) == oracle(byte_tokenizer, messages)

    @pytest.mark.checkpoint
    def test_cht_04_default_system_text(self, smollm2_tokenizer: Tokenizer) -> None:
        ids = render(smollm2_tokenizer, HELLO)
        assert ids == oracle(smollm2_tokenizer, HELLO)
        assert "named SmolLM" in smollm2_tokenizer.decode(ids)
        messages = [{"role": "system", "content": "Be brief."}, *HELLO]
        ids = render(smollm2_tokenizer, messages)
        assert ids == oracle(smollm2_tokenizer, messages)
        text = smollm2_tokenizer.decode(ids, False)
        assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>")
        assert "named SmolLM" not in text


class TestOptions:
    ANSWER = (*HELLO, {"role": "assistant", "content": "hi"})

    def test_continue_final_message(self, byte_tokenizer: Tokenizer) -> None:
        ids = render(
            byte_tokenizer,
            self.ANSWER,
            add_generation_prompt=False,
            continue_final_message=True,
        )
        assert byte_tokenizer.decode(ids, False).endswith("assistant: hi")
        assert ids == oracle(
            byte_tokenizer,
            list(self.ANSWER),
            add_generation_prompt=False,
            continue_final_message=True,
        )

    def test_exclusive_options(self, byte_tokenizer: Tokenizer) -> None:
        with pytest.raises(ChatTemplateError, match="exclude each other"):
            render(byte_tokenizer, self.ANSWER, continue_final_message=True)

    def test_no_generation_prompt(self, byte_tokenizer: Tokenizer) -> None:
        text = render_text(byte_tokenizer, HELLO, add_generation_prompt=False)
        assert text == "<bos>user: hello<eos>\n"
        text = render_text(byte_tokenizer, HELLO, add_generation_prompt=True)
        assert text == "<bos>user: hello<eos>\nassistant:"

    def test_template_variables(self, byte_tokenizer: Tokenizer) -> None:
        text = render_text(
            byte_tokenizer,
            HELLO,
            chat_template="{{ mood }}{{ messages | length }}",
            template_kwargs={"mood": "calm"},
        )
        assert text == "calm1"

    @pytest.mark.parametrize("name", ["tokenize", "messages", "add_generation_prompt"])
    def test_reserved_variables(self, byte_tokenizer: Tokenizer, name: str) -> None:
        with pytest.raises(ChatTemplateError, match=f"must not set {name}"):
            render(byte_tokenizer, HELLO, template_kwargs={name: True})

    def test_named_templates(
        self, byte_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hf = byte_tokenizer.hf
        monkeypatch.setattr(hf, "chat_template", {"a": "A", "default": "D"})
        assert render_text(byte_tokenizer, HELLO) == "D"
        assert render_text(byte_tokenizer, HELLO, chat_template="a") == "A"
        monkeypatch.setattr(hf, "chat_template", {"a": "A", "b": "B"})
        with pytest.raises(ChatTemplateError, match="multiple chat templates"):
            render(byte_tokenizer, HELLO)


class TestReadChatTemplate:
    def test_a_template_is_returned(self) -> None:
        assert read_chat_template(PLAIN) == PLAIN

    def test_a_file_is_read(self, tmp_path: Any) -> None:
        file = tmp_path / "chat.jinja"
        file.write_text(PLAIN, encoding="utf-8")
        assert read_chat_template(str(file)) == PLAIN

    def test_neither(self, tmp_path: Any) -> None:
        with pytest.raises(ChatTemplateError, match="neither a Jinja template"):
            read_chat_template(str(tmp_path / "missing.jinja"))
