"""The commands of `rinker`."""
