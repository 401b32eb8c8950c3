"""The type of a device, under a name that type checkers accept.

`jax.Device` is a variable to them, since jax takes it from a compiled module.
"""

from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    Device = Any
else:
    Device = jax.Device
