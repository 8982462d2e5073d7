"""Weights of a model in training reach the servers that score with it: a control plane (HTTP) and planes that carry tensors."""
