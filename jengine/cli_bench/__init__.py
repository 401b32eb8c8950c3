"""`jengine bench`: flags of its commands; the measuring is in `jengine.bench`."""
