"""`python -m jengine.bench.gpu_check`: all that only a GPU can show, in six minutes.

Correctness of the kernels, parity with a CPU, bandwidth, tokens a second against the
roofline, transformers on the same shapes, compiler flags, tiles. `command` is the
front, `driver` runs each part in a process of its own (`worker`), `report` keeps what
came of it as JSON, `table` prints it. What a part measures is in `parts`. With
`smoke` every part runs on a CPU, on shapes so small that its numbers say nothing.
"""
