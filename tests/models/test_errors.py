from models import errors


def test_every_refusal_is_a_value_error():
    assert issubclass(errors.ModelConfigError, ValueError)
    assert issubclass(errors.UnsupportedModelError, errors.ModelConfigError)
