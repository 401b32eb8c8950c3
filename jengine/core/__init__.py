"""The host side: plain state machines that decide what each step runs.

Imports the standard library only, so that a scheduler can be built from a few
integers and simulated anywhere. `scheduler.Scheduler` owns the queues,
`cache_manager.CacheManager` the block tables and `block_pool.BlockPool` the
blocks. They emit `plan.StepPlan` values and consume `plan.StepResult` values.
"""
