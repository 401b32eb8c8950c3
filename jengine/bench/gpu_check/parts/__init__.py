"""What is measured: each module has `run(recorder)` and its own process."""
