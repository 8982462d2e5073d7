"""The ways in which tensors travel from a trainer to servers, each with its two ends."""
