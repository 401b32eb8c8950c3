import pytest

from jengine.errors import SamplingParamsError
from jengine.structured_outputs import (
    KINDS,
    GuidedDecodingParams,
    StructuredOutputsParams,
)

VALID = {
    "json": {"type": "integer"},
    "regex": "a+",
    "choice": ["a", "b", "a"],
    "grammar": "start: x",
    "json_object": True,
    "structural_tag": {"structures": [], "triggers": []},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_alone_is_one_constraint(kind):
    params = StructuredOutputsParams(**{kind: VALID[kind]})
    assert params.kind == kind
    assert isinstance(hash(params), int)
    with pytest.raises(SamplingParamsError, match="exactly one of"):
        StructuredOutputsParams(**{kind: VALID[kind]}, **_other(kind))


def _other(kind):
    return {"regex": "x"} if kind != "regex" else {"choice": ["x"]}


def test_normal_forms():
    assert StructuredOutputsParams(choice=["a", "b", "a"]).choice == ("a", "b")
    as_dict = StructuredOutputsParams(json={"type": "integer", "é": 1})
    as_text = StructuredOutputsParams(json='{ "type":"integer", "é" : 1}')
    assert as_dict == as_text
    assert as_dict.json == '{"type": "integer", "é": 1}'
    assert StructuredOutputsParams(json=True).json == "true"


@pytest.mark.parametrize("backend", [None, "auto", "guidance"])
def test_vllms_older_name(backend):
    older = GuidedDecodingParams(choice=["a", "b"], backend=backend)
    assert isinstance(older, StructuredOutputsParams)
    assert (older.kind, older.choice) == ("choice", ("a", "b"))


@pytest.mark.parametrize("backend", ["outlines", "xgrammar:no-fallback", 1])
def test_libraries_that_are_not_there(backend):
    with pytest.raises(SamplingParamsError, match=r"backend is .*'auto' or 'guidance'"):
        GuidedDecodingParams(regex="a+", backend=backend)


def test_older_name_checks_its_constraint():
    with pytest.raises(SamplingParamsError, match="exactly one of"):
        GuidedDecodingParams(regex="a+", json_object=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("json", "{"),
        ("json", [1]),
        ("json", {"a": {1, 2}}),
        ("json", {"a": float("nan")}),
        ("structural_tag", True),
        ("structural_tag", "x"),
        ("regex", ""),
        ("regex", 3),
        ("regex", "a\0"),
        ("grammar", "  "),
        ("choice", []),
        ("choice", "ab"),
        ("choice", [""]),
        ("choice", [1]),
        ("json_object", False),
        ("json_object", 1),
    ],
)
def test_values_that_are_none(field, value):
    with pytest.raises(SamplingParamsError, match=rf"structured_outputs\.{field} is"):
        StructuredOutputsParams(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("disable_any_whitespace", 1),
        ("disable_additional_properties", "no"),
        ("whitespace_pattern", ""),
        ("whitespace_pattern", 3),
    ],
)
def test_options_that_are_none(field, value):
    with pytest.raises(SamplingParamsError, match=rf"structured_outputs\.{field} is"):
        StructuredOutputsParams(json_object=True, **{field: value})
