"""Graders in processes that all workers of a node share."""

from __future__ import annotations

from typing import Any

from reward_loop.isolation.pool import processes_for
from reward_loop.managers.base import Graders
from reward_loop.managers.prime import PrimeRewardManager
from reward_loop.managers.registry import register


@register("remote")
class RemoteRewardManager(PrimeRewardManager):
    """As `prime`, but on Ray with one pool of processes per node, whatever the number of workers on it."""

    def start_graders(self) -> Graders:
        """Join the node's pool under Ray; elsewhere this process is the node's only worker."""
        if self.config.reward_model.executor != "ray":
            return super().start_graders()
        from reward_loop.isolation.ray_graders import NodeGraders

        return NodeGraders(self.job.name, self.grader_settings)

    @property
    def grader_settings(self) -> dict[str, Any]:
        """The arguments of `GraderPool`, whose processes are those of the whole node."""
        usual, most = processes_for(self.config.reward_model.grader, workers_on_node=1)
        return super().grader_settings | {"processes": self.kwargs.num_processes or usual, "max_processes": most}
