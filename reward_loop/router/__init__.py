"""Choosing among replicas: whichever of several equals (workers, servers) takes the next piece of work."""
