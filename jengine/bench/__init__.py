"""Measurements of the engine on real devices."""
