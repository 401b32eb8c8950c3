import math

import pytest

from models.config_fields import ConfigFields
from models.errors import ModelConfigError

VALUES = {"n": 3, "x": 0.5, "yes": True, "word": "silu", "map": {"a": 1}, "list": [1]}


def test_values_come_back():
    fields = ConfigFields(VALUES)
    assert fields.integer("n") == 3
    assert fields.number("x") == 0.5
    assert fields.number("n") == 3.0
    assert fields.flag("yes", False) is True
    assert fields.text("word") == "silu"
    assert fields.mapping("map") == {"a": 1}
    assert fields.sequence("list") == (1,)


@pytest.mark.parametrize("values", [{}, {"key": None}])
def test_missing_and_null_take_the_default(values):
    fields = ConfigFields(values)
    assert not fields.has("key")
    assert fields.integer("key", 4) == 4
    assert fields.number("key", 0.5) == 0.5
    assert fields.flag("key", True) is True
    assert fields.text("key", "w") == "w"
    assert fields.mapping("key") == {}
    assert fields.sequence("key") == ()


@pytest.mark.parametrize("getter", ["integer", "number", "text"])
def test_missing_without_default_names_the_key(getter):
    with pytest.raises(ModelConfigError, match=r"rope\.key is missing"):
        getattr(ConfigFields({}, "rope."), getter)("key")


@pytest.mark.parametrize(
    ("getter", "value"),
    [
        ("integer", 0),
        ("integer", -2),
        ("integer", 2.0),
        ("integer", True),
        ("integer", "2"),
        ("number", 0),
        ("number", math.nan),
        ("number", math.inf),
        ("number", True),
        ("number", "1"),
        ("text", 1),
        ("mapping", [1]),
        ("sequence", "abc"),
        ("sequence", {}),
    ],
)
def test_ill_typed_value_is_named(getter, value):
    with pytest.raises(ModelConfigError, match=r"rope\.key") as caught:
        getattr(ConfigFields({"key": value}, "rope."), getter)("key")
    assert repr(value) in str(caught.value)


def test_flag_takes_no_number():
    with pytest.raises(ModelConfigError, match="key is 1; it must be true or false"):
        ConfigFields({"key": 1}).flag("key", False)


def test_least_can_be_zero():
    assert ConfigFields({"key": 0}).integer("key", least=0) == 0
