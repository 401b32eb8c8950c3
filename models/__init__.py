"""Flax NNX definitions of the models that jengine serves.

A model is a pure function of parameters, step inputs and the paged KV cache. It
knows nothing of requests, schedulers or engines, and imports `kernels_pallas`
only. `inputs.StepInputs` and `kv_cache.KVCache` are the contract that a runner
fills; `registry.resolve` finds the family of an architecture.
"""

OWNER = "jengine"
