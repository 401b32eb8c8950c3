"""Kernels: arrays in, arrays out, on jax alone.

Each operation has a folder: `api.py` checks and dispatches, `reference.py` is
plain jnp and defines the meaning, the other files are faster ways to the same
result.
"""
