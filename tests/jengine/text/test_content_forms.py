"""In which form each role's contents come out of a template whole."""

import jinja2
import pytest

from jengine.text.content_forms import fit_contents, prints_parts

PARTS = "{% for p in m.content %}[{{ p.text }}]{% endfor %}"
PLAIN = "{{ m.content }}"
FIRST = "{{ m.content[0].text }}"
EITHER = "{% if m.content is string %}" + PLAIN + "{% else %}" + PARTS + "{% endif %}"
NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ no.such.thing }}{% endif %}"


def renderer(of_system, of_others, before=""):
    text = (
        before + "{% for m in messages %}<{{ m.role }}>{% if m.role == 'system' %}"
        f"{of_system}{{% else %}}{of_others}{{% endif %}}{{% endfor %}}"
    )
    template = jinja2.Environment().from_string(text)
    return lambda messages: template.render(messages=messages)


def message(role, *texts):
    """One text is a string, several are parts."""
    parts = [{"type": "text", "text": text} for text in texts]
    return {"role": role, "content": texts[0] if len(texts) == 1 else parts}


STRINGS = [message("system", "S"), message("user", "U"), message("assistant", "A")]
LISTS = [message("system", "S1", "S2"), message("user", "U1", "U2")]


@pytest.mark.parametrize(
    ("render", "strings", "lists"),
    [
        (
            renderer(PLAIN, PLAIN),
            "<system>S<user>U<assistant>A",
            "<system>S1\nS2<user>U1\nU2",
        ),
        (
            renderer(PARTS, PARTS),
            "<system>[S]<user>[U]<assistant>[A]",
            "<system>[S1][S2]<user>[U1][U2]",
        ),
        (
            renderer(EITHER, EITHER),
            "<system>S<user>U<assistant>A",
            "<system>[S1][S2]<user>[U1][U2]",
        ),
        (
            renderer(PLAIN, PARTS),
            "<system>S<user>[U]<assistant>[A]",
            "<system>S1\nS2<user>[U1][U2]",
        ),
        (
            renderer(PARTS, PLAIN),
            "<system>[S]<user>U<assistant>A",
            "<system>[S1][S2]<user>U1\nU2",
        ),
        (
            renderer(FIRST, FIRST),
            "<system>S<user>U<assistant>A",
            "<system>S1\nS2<user>U1\nU2",
        ),
        (
            renderer(PLAIN + ".", PARTS, NEEDS_SYSTEM),
            "<system>S.<user>[U]<assistant>[A]",
            "<system>S1\nS2.<user>[U1][U2]",
        ),
    ],
    ids=["strings", "lists", "either", "mixed", "mixed 2", "first part", "system"],
)
def test_nothing_is_lost_and_nothing_is_printed_as_python(render, strings, lists):
    assert render(fit_contents(STRINGS, render)) == strings
    assert render(fit_contents(LISTS, render)) == lists
    both = [LISTS[0], STRINGS[1]]
    shown = render(fit_contents(both, render))
    assert all(text in shown for text in ("S1", "S2", "U"))
    assert "{" not in shown


def test_a_template_that_leaves_something_out_gets_what_was_given():
    last = jinja2.Environment().from_string("{{ messages[-1].content }}")
    render = lambda messages: last.render(messages=messages)  # noqa: E731
    assert fit_contents(STRINGS, render) == STRINGS


def test_a_template_that_refuses_everything_gets_what_was_given():
    def render(messages):
        raise ValueError(messages)

    assert fit_contents(LISTS, render) == LISTS
    assert not prints_parts(LISTS, render)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_what_is_empty_is_an_empty_string(content):
    found = fit_contents([{"role": "user", "content": content}], renderer(PLAIN, PLAIN))
    assert found == [{"role": "user", "content": ""}]


def test_contents_are_not_changed_in_place():
    before = repr(LISTS)
    fit_contents(LISTS, renderer(PLAIN, PLAIN))
    assert repr(LISTS) == before


def test_printed_parts_are_noticed():
    assert prints_parts(LISTS, renderer(PLAIN, PARTS))
    assert not prints_parts(LISTS, renderer(PARTS, PARTS))
