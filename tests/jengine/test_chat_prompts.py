import pytest

from jengine.chat_prompts import ChatPrompts
from jengine.errors import ChatTemplateError, InvalidValueError, PromptError
from jengine.prompts import ParsedPrompt
from jengine.testing import write_sentencepiece_tokenizer
from jengine.text.tokenizer import load_tokenizer

USER = [{"role": "user", "content": "a"}]
FIRST = "{{ messages[0].content }}"


@pytest.fixture
def rendered(monkeypatch):
    """What the renderer is asked; it writes three letters."""
    asked = []

    def render(tokenizer, messages, *, chat_template, **options):
        asked.append((messages, chat_template, options))
        return "abc"

    monkeypatch.setattr("jengine.chat_prompts.render_text", render)
    return asked


def test_a_prompt_has_text_and_ids(letters, rendered):
    assert ChatPrompts(letters, None).render(USER) == ParsedPrompt("abc", (0, 1, 2))
    ((messages, template, options),) = rendered
    assert (messages, template) == (USER, None)
    assert options == {
        "add_generation_prompt": True,
        "continue_final_message": False,
        "tools": None,
        "template_kwargs": None,
        "content_format": "auto",
    }


def test_the_text_is_what_was_written_not_what_the_ids_say(tmp_path):
    tokenizer = load_tokenizer(write_sentencepiece_tokenizer(tmp_path))
    template = "<s>{{ messages[0].content }}</s>b"
    prompt = ChatPrompts(tokenizer, template).render(USER)
    assert prompt.text == "<s>a</s>b"
    ids = tokenizer.encode("<s>a</s>b", add_special_tokens=False)
    assert prompt.token_ids == tuple(ids)
    assert tokenizer.decode(ids, skip_special_tokens=False) != prompt.text


def test_a_given_template_comes_before_the_engines(letters, rendered, tmp_path):
    file = tmp_path / "template.jinja"
    file.write_text(FIRST)
    chats = ChatPrompts(letters, str(file))
    chats.render(USER)
    chats.render(USER, chat_template="{{ 1 }}", tools=[{}])
    assert [template for _, template, _ in rendered] == [FIRST, "{{ 1 }}"]
    assert [options["tools"] for _, _, options in rendered] == [None, [{}]]


def test_what_cannot_be_written_out(letters):
    with pytest.raises(ChatTemplateError, match="neither a Jinja template"):
        ChatPrompts(letters, "missing.jinja")
    with pytest.raises(ChatTemplateError, match="neither a Jinja template"):
        ChatPrompts(letters, None).render(USER, chat_template="missing.jinja")
    with pytest.raises(PromptError, match="without a tokenizer"):
        ChatPrompts(None, FIRST).render(USER)
    for bad in ("list", None, ["auto"]):
        with pytest.raises(InvalidValueError, match=r"format is .*'openai'"):
            ChatPrompts(letters, FIRST).render(USER, chat_template_content_format=bad)
    with pytest.raises(InvalidValueError, match="chat_template is 5; allowed: a text"):
        ChatPrompts(letters, None).render(USER, chat_template=5)
    with pytest.raises(InvalidValueError, match="kwargs is 5; allowed: a dict"):
        ChatPrompts(letters, FIRST).render(USER, chat_template_kwargs=5)
