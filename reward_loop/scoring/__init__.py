"""Clients of the servers that are asked for rewards."""
