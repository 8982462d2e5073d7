"""Reinforcement learning on the clients: environments, rollouts, advantages, and the loop."""
