"""What `models` raises for a configuration that it cannot build."""


class ModelConfigError(ValueError):
    """A key of the configuration is missing, has the wrong type or contradicts."""


class UnsupportedModelError(ModelConfigError):
    """The configuration is well formed, but asks for what is not implemented."""
