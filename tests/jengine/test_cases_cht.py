"""Conversations reach the model as transformers writes them, or are refused."""

import copy
import dataclasses
import json

import pytest

from jengine import SamplingParams
from jengine.errors import ChatTemplateError
from jengine.testing import (
    uniform,
    write_byte_tokenizer,
    write_markov_checkpoint,
    write_sentencepiece_tokenizer,
)

VOCAB = 320
ONE = SamplingParams(temperature=0, max_tokens=1)
HELLO = [{"role": "user", "content": "hello"}]
PLAIN = "{% for m in messages %}{{ m['role'] + ':' + m['content'] + ';' }}{% endfor %}"
WITH_BOS = "{{ bos_token }}" + PLAIN
# Adds a system text of its own unless there is one, as SmolLM2's does.
DEFAULT_SYSTEM = (
    "{% for m in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<bos>system\nYou help.<eos>\n' }}{% endif %}"
    "{{ '<bos>' + m['role'] + '\n' + m['content'] + '<eos>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<bos>assistant\n' }}{% endif %}"
)
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}"
    "{{ '[' + part.text + ']' }}{% endfor %};{% endfor %}"
)
HERMES = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
    "{% for call in m.tool_calls or [] %}"
    "{{ call.function.name + '(' + (call.function.arguments | tojson) + ')' }}"
    "{% endfor %}{% if m.tool_call_id %}{{ '#' + m.tool_call_id }}{% endif %}"
    "{% endfor %}"
)
GEMMA = (
    "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant/user') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


@pytest.fixture(scope="module")
def make_chatter(tmp_path_factory, make_llm):
    """Makes an engine that says anything, with a tokenizer of a kind."""

    def make(write, **tokenizer):
        folder = tmp_path_factory.mktemp("chatter")
        write(folder, **tokenizer)
        write_markov_checkpoint(folder, uniform(range(97, 123), VOCAB))
        return make_llm(folder, skip_tokenizer_init=False)

    return make


@pytest.fixture(scope="module")
def llm(make_chatter):
    return make_chatter(write_byte_tokenizer)


@pytest.fixture(scope="module")
def sentencepiece(make_chatter):
    """Its tokenizer adds a BOS to plain text."""
    return make_chatter(write_sentencepiece_tokenizer)


@pytest.fixture
def healthy(llm, check_idle):
    """Sees that the engine still answers after whatever a test does."""
    yield llm
    check_idle(llm)
    assert len(_chat(llm, HELLO)) > 5


def _chat(llm, messages, **options):
    (output,) = llm.chat(messages, ONE, use_tqdm=False, **options)
    assert len(output.outputs[0].token_ids) == 1
    return output.prompt_token_ids


def _oracle(llm, messages, **options):
    """What transformers itself makes of a conversation."""
    options = {"add_generation_prompt": True, "return_dict": False} | options
    return llm.get_tokenizer().apply_chat_template(messages, **options)


@pytest.mark.parametrize(("template", "count"), [(WITH_BOS, 1), (PLAIN, 0)])
def test_cht_01_the_template_alone_writes_bos(sentencepiece, template, count):
    bos = sentencepiece.get_tokenizer().bos_token_id
    for messages in (HELLO, [*HELLO, {"role": "assistant", "content": "the cat"}]):
        ids = _chat(sentencepiece, messages, chat_template=template)
        assert ids == _oracle(sentencepiece, messages, chat_template=template)
        assert ids.count(bos) == count
        stream = sentencepiece.stream_chat(messages, ONE, chat_template=template)
        (*_, last) = stream
        assert last.prompt_token_ids == ids


def test_cht_01_plain_text_has_the_tokenizers_own_bos(sentencepiece):
    hf = sentencepiece.get_tokenizer()
    (output,) = sentencepiece.generate("hello", ONE, use_tqdm=False)
    assert output.prompt_token_ids == hf.encode("hello")
    assert output.prompt_token_ids.count(hf.bos_token_id) == 1
    ids = _oracle(sentencepiece, HELLO, chat_template=WITH_BOS)
    (output,) = sentencepiece.generate({"prompt_token_ids": ids}, ONE, use_tqdm=False)
    assert output.prompt_token_ids == ids


def test_cht_01_special_tokens_in_a_users_text_are_no_surprise(llm):
    # As transformers has it: the text of a special token is that token.
    messages = [{"role": "user", "content": "a<eos>b<bos>"}]
    assert _chat(llm, messages) == _oracle(llm, messages)


def _calls(*arguments):
    return [
        {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "f", "arguments": given},
        }
        for i, given in enumerate(arguments)
    ]


def _history(calls, content=None):
    return [
        {"role": "user", "content": "Wetter?"},
        {"role": "assistant", "content": content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c0", "content": '{"temp": 20}'},
    ]


TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"title": "für Städte"}},
    }
]


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (['{"city": "X"}'], [{"city": "X"}]),
        ([{"city": "Köln"}], [{"city": "Köln"}]),
        (["", "{}", None], [{}, {}, {}]),
        (['{"a": [1, null, "\\u00e9"]}', '{"b": {"c": 1.5}}'], None),
    ],
    ids=str,
)
def test_cht_02_arguments_reach_the_template_as_mappings(llm, given, normal):
    normal = normal or [json.loads(text) for text in given]
    messages = _history(_calls(*given))
    before = copy.deepcopy(messages)
    ids = _chat(llm, messages, chat_template=HERMES, tools=TOOLS)
    wanted = _history(_calls(*normal), content="")
    assert ids == _oracle(llm, wanted, chat_template=HERMES, tools=TOOLS)
    assert messages == before  # what the caller passed is not changed


def test_cht_02_no_tools_are_none_and_calls_may_be_empty(llm):
    template = "{{ tools is none }}{{ messages[0].content }}"
    for tools in (None, []):
        assert bytes(_chat(llm, HELLO, chat_template=template, tools=tools)) == (
            b"Truehello"
        )
    messages = [*HELLO, {"role": "assistant", "content": "hm", "tool_calls": []}]
    text = bytes(_chat(llm, messages, chat_template=HERMES))
    assert text == b"<user>hello<assistant>hm"


@pytest.mark.parametrize(
    "calls",
    [
        *[_calls(text) for text in ("{city:", "[1]", "3", "null", "{} x")],
        [{"id": "c"}],
        ["weather"],
        "weather",
        [{"function": "weather"}],
    ],
    ids=str,
)
def test_cht_02_calls_that_cannot_be_read_are_refused(healthy, calls):
    with pytest.raises(ValueError, match=r"messages\[1\]\['tool_calls'\]"):
        _chat(healthy, _history(calls), chat_template=HERMES)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "A"}], "A"),
        ([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], "A\nB"),
        (["A", {"type": "text", "text": "é😀"}], "A\né😀"),
        ([{"type": "text", "text": ""}], ""),
        ([], ""),
        (None, ""),
        ("A", "A"),
    ],
    ids=str,
)
def test_cht_03_text_parts_are_joined_for_templates_of_strings(llm, content, text):
    messages = [{"role": "user", "content": content}, *HELLO]
    wanted = [{"role": "user", "content": text}, *HELLO]
    for template in (None, PLAIN, DEFAULT_SYSTEM):
        ids = _chat(llm, messages, chat_template=template)
        assert ids == _oracle(llm, wanted, chat_template=template)


def test_cht_03_parts_pass_through_to_templates_of_lists(llm):
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    mixed = [{"role": "system", "content": "S"}, {"role": "user", "content": parts}]
    assert bytes(_chat(llm, mixed, chat_template=PARTS)) == b"system:[S];user:[A][B];"
    as_list = [mixed[0] | {"content": [{"type": "text", "text": "S"}]}, mixed[1]]
    assert _chat(llm, mixed, chat_template=PARTS) == _oracle(
        llm, as_list, chat_template=PARTS
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "image"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "video", "video": "x"},
        {"text": "no type"},
        {"type": "text"},
        {"type": "text", "text": None},
        3,
        None,
        ["A"],
    ],
    ids=str,
)
@pytest.mark.parametrize("template", [PLAIN, PARTS], ids=["strings", "lists"])
def test_cht_03_other_parts_are_refused(healthy, part, template):
    content = [{"type": "text", "text": "A"}, part]
    with pytest.raises(ValueError, match=r"messages\[0\]\['content'\]\[1\]"):
        _chat(healthy, [{"role": "user", "content": content}], chat_template=template)


SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "Hi."}


@pytest.mark.parametrize(
    ("template", "messages", "words"),
    [
        (GEMMA, [SYSTEM, *HELLO], "System role not supported"),
        (GEMMA, HELLO * 2, "Roles must alternate"),
        (GEMMA, [ANSWER], "Roles must alternate"),
        ("{% for m in messages %}", HELLO, "line 1"),
        ("\n{{ messages | nothing }}", HELLO, "nothing"),
        ("{{ messages[0].content + 3 }}", HELLO, "refused"),
        ("{{ messages[7].content.x }}", HELLO, "refused"),
        ("{{ ''.__class__.__mro__ }}", HELLO, "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", HELLO, "refused"),
        ("{{ raise_exception() }}", HELLO, "refused"),
        ("{{ 1 / 0 }}", HELLO, "refused"),
    ],
)
def test_cht_04_a_template_that_refuses_says_why(healthy, template, messages, words):
    with pytest.raises(ChatTemplateError, match=words):
        _chat(healthy, messages, chat_template=template)
    with pytest.raises(ValueError, match=words):  # beside a good one
        healthy.chat([HELLO, messages], ONE, use_tqdm=False, chat_template=template)
    with pytest.raises(ValueError, match=words):
        healthy.stream_chat(messages, ONE, chat_template=template)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        {},
        "hello",
        None,
        3,
        [[]],
        ["hello"],
        [HELLO, "hello"],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": "", "content": "x"}],
        [{"role": 3, "content": "x"}],
        [{"role": None, "content": "x"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": {"text": "x"}}],
        [{"role": "user", "content": b"x"}],
        [{"role": "user", "content": "lone \ud800 surrogate"}],
    ],
    ids=repr,
)
def test_cht_04_messages_that_make_no_sense_are_refused(healthy, messages):
    with pytest.raises(ValueError, match=r"messages|content|prompt|surrogate"):
        healthy.chat(messages, ONE, use_tqdm=False)


def test_cht_04_no_template_at_all(make_chatter, check_idle):
    llm = make_chatter(write_byte_tokenizer, chat_template=None)
    with pytest.raises(ChatTemplateError, match="no chat template"):
        llm.chat(HELLO, ONE, use_tqdm=False)
    assert bytes(_chat(llm, HELLO, chat_template=PLAIN)) == b"user:hello;"
    check_idle(llm)


def test_cht_04_the_default_system_text(llm):
    for messages in (HELLO, [SYSTEM, *HELLO], [*HELLO, ANSWER, *HELLO]):
        ids = _chat(llm, messages, chat_template=DEFAULT_SYSTEM)
        assert ids == _oracle(llm, messages, chat_template=DEFAULT_SYSTEM)
        assert (bytes([i for i in ids if i < 256]).count(b"You help.") == 1) is (
            messages[0] != SYSTEM
        )


def test_cht_04_a_role_that_the_template_takes_is_taken(llm):
    for role in ("xyz", "developer", "tool", "function"):
        messages = [{"role": role, "content": "x", "name": "n"}]
        assert _chat(llm, messages) == _oracle(llm, messages)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"add_generation_prompt": True, "continue_final_message": True}, "exclude"),
        ({"tools": "weather"}, "tools"),
        ({"chat_template": "no_such_file.jinja"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "messages"),
        ({"chat_template_content_format": "xml"}, "chat_template_content_format"),
    ],
    ids=str,
)
def test_cht_04_options_that_make_no_sense_are_refused(healthy, options, words):
    with pytest.raises(ValueError, match=words):
        _chat(healthy, HELLO, **options)


def test_cht_04_a_conversation_that_is_too_long_is_refused(healthy):
    long = [{"role": "user", "content": "x" * 1000}]
    with pytest.raises(ValueError, match=r"10\d\d.*255"):
        healthy.chat([HELLO, long], ONE, use_tqdm=False)


@pytest.mark.parametrize("end", ["The", "The ", "", "中", "é\n"])
def test_cht_the_last_message_goes_on(llm, end):
    messages = [*HELLO, {"role": "assistant", "content": end}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    ids = _chat(llm, messages, **options)
    assert ids == _oracle(llm, messages, **options)
    assert bytes([i for i in ids if i < 256]).endswith(b"assistant: " + end.encode())


def test_cht_params_of_each_conversation(llm, check_idle):
    params = [ONE, dataclasses.replace(ONE, max_tokens=3)]
    outputs = llm.chat([HELLO, [SYSTEM, *HELLO]], params, use_tqdm=False)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [1, 3]
    assert [o.prompt_token_ids for o in outputs] == [
        _oracle(llm, HELLO),
        _oracle(llm, [SYSTEM, *HELLO]),
    ]
    check_idle(llm)


@pytest.mark.parametrize("adds", [True, False])
def test_cht_01_text_with_its_own_bos_is_completed_without_another(sentencepiece, adds):
    hf = sentencepiece.get_tokenizer()
    text = hf.apply_chat_template(HELLO, chat_template=WITH_BOS, tokenize=False)
    kwargs = {"add_special_tokens": adds}
    (output,) = sentencepiece.generate(
        text, ONE, use_tqdm=False, tokenization_kwargs=kwargs
    )
    assert output.prompt_token_ids == hf.encode(text, **kwargs)
    assert output.prompt_token_ids.count(hf.bos_token_id) == 1 + adds


@pytest.mark.parametrize(
    "bad", [{"padding": True}, {"add_special_tokens": 1}, ["add_special_tokens"]]
)
def test_cht_01_other_wishes_for_the_tokenizer_are_refused(healthy, bad):
    with pytest.raises(ValueError, match="tokenization_kwargs"):
        healthy.generate("hello", ONE, use_tqdm=False, tokenization_kwargs=bad)
