"""Reward models served by vLLM: what runs inside its processes, the processes, and the manager of all replicas."""
