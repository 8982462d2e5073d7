"""Graders in processes that all workers of a node share."""

from __future__ import annotations

from reward_loop.managers.prime import Graders, PrimeRewardManager
from reward_loop.managers.registry import register


@register("remote")
class RemoteRewardManager(PrimeRewardManager):
    """As `prime`, but on Ray with one pool of processes per node, whatever the number of workers on it."""

    def start_graders(self) -> Graders:
        """Join the node's pool under Ray; elsewhere this process is the node's only worker."""
        if self.config.reward_model.executor != "ray":
            return super().start_graders()
        from reward_loop.isolation.ray_graders import NodeGraders

        return NodeGraders(self._function, self._constants, self.num_processes, self.config.reward_model.timeout_s, self.job)
