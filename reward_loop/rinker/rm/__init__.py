"""Training of reward models on preferences."""
