"""`jengine bench serve`: a load on a server, and what its users notice of it."""
