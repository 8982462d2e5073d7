"""A service that is reached by HTTP, as a Backend."""
