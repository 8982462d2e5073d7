"""Supervised learning on conversations."""
