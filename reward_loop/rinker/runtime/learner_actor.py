"""The process that holds one rank of a model in training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import ray

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.loading import chosen_device
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import LossConfig, Weights
from reward_loop.rinker.runtime.rank_group import GroupRanks, Host, Meeting, join
from reward_loop.rinker.runtime.settings import LearnerSettings
from reward_loop.rinker.runtime.sharded_ranks import ShardedRanks
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse


class LearnerActor:
    """Rank `rank` of the model of a spec. Every rank gets every call, with the same arguments; rank 0 returns what there is."""

    def __init__(self, rank: int, spec: ModelSpec, engine: EngineSettings, settings: LearnerSettings) -> None:
        self._rank, self._spec, self._settings = rank, spec, settings
        # Some versions of Ray show all GPUs to an actor that has none.
        self._engine_settings = engine.model_copy(update={"device": "cpu"}) if not settings.gpus else engine
        self._host: Host | None = None
        self._ranks = Ranks()
        self._engine: Engine | None = None

    def pid(self) -> int:
        """Return the process."""
        return os.getpid()

    def host(self) -> Meeting:
        """Open the place where the ranks meet, and return where it is."""
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._host = Host(address, self._settings.ranks, self._settings.collective_timeout_s)
        return self._host.meeting

    def load_model(self, meeting: Meeting | None) -> None:
        """Meet the other ranks, where there are any, and load the model."""
        if meeting is not None:
            cuda = chosen_device(self._engine_settings.device).type == "cuda"
            limit_s = self._settings.collective_timeout_s
            join(meeting, self._rank, self._settings.ranks, limit_s, host=self._host, cuda=cuda)
            self._ranks = ShardedRanks() if self._settings.strategy == "fsdp2" else GroupRanks()
        self._engine = Engine(self._spec, self._engine_settings, self._ranks)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None, forward_only: bool
    ) -> ForwardBackwardOutput | None:
        """See `Learner`."""
        output = self._loaded.forward_backward(data, loss_fn, config, forward_only=forward_only)
        return output if self._ranks.writes else None

    def optim_step(self, params: AdamParams) -> OptimStepResponse | None:
        """See `Learner`."""
        response = self._loaded.optim_step(params)
        return response if self._ranks.writes else None

    def save(self, directory: Path, optimizer: bool) -> None:
        """See `Learner`."""
        try:
            self._loaded.save(directory, optimizer=optimizer)
        except RequestFailedError:
            if self._ranks.writes:
                self._ranks.most(1.0)  # the others wait in this exchange until the files are there
            raise

    def load(self, directory: Path, optimizer: bool) -> None:
        """See `Learner`."""
        self._loaded.load(directory, optimizer=optimizer)

    def weights(self) -> Weights | None:
        """See `Learner`."""
        weights = self._loaded.weights()
        return weights if self._ranks.writes else None

    @property
    def _loaded(self) -> Engine:
        if self._engine is None:
            raise RequestFailedError(f"rank {self._rank} has no model yet; call load_model first", category="server")
        return self._engine
