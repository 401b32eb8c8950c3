"""`jengine bench roofline`: step time against batch size, and what limits it."""
