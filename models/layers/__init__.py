"""Building blocks that the model families share."""
