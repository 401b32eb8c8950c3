"""Constraints on what a request may say next, by what it has said so far.

They need the host to know every token before the next one is drawn, unlike penalties,
which the device counts by itself. So a step with such rows runs its forward program
first, and its sampling program when the masks are there.
"""
