import pickle

import pytest

from jengine import errors


@pytest.mark.parametrize(
    "kind", [errors.ConfigError, errors.SamplingParamsError, errors.PromptError]
)
def test_message_names_field_found_allowed_and_way_out(kind):
    error = kind("block_size", 0, "an integer of at least 1", "Leave it out.")
    message = str(error)
    assert message == (
        "block_size is 0; allowed: an integer of at least 1. Leave it out."
    )
    assert (error.field, error.found) == ("block_size", 0)
    assert (error.allowed, error.hint) == ("an integer of at least 1", "Leave it out.")


@pytest.mark.parametrize(
    "kind",
    [
        errors.InvalidValueError,
        errors.UnsupportedError,
        errors.CheckpointError,
        errors.ChatTemplateError,
    ],
)
def test_every_error_is_a_value_error(kind):
    assert issubclass(kind, errors.JengineError)
    assert issubclass(kind, ValueError)


def test_huge_values_are_shortened():
    message = str(errors.PromptError("prompt", "x" * 10_000, "less"))
    assert len(message) < 250
    assert "10002 characters" in message


def test_values_that_python_will_not_print_still_give_a_message():
    assert "type int too large" in str(errors.PromptError("seed", 10**5000, "64 bits"))


def test_errors_survive_pickling():
    error = errors.ConfigError("seed", "a", "an integer", "Use 0.")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is errors.ConfigError
    assert str(copied) == str(error)
    assert copied.hint == "Use 0."
