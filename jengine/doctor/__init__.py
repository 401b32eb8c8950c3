"""What this machine has, what jengine would do with it, and what is missing.

`diagnose` gathers a frozen `Report`; the command `jengine doctor` prints it. Whatever
may take a process down with it, which jax's plugins can, runs in a process of its own.
"""
