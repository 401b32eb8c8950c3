"""One file an engine, each loaded by `worker` under that engine's own Python."""
