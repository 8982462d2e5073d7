"""What the tests of publishing have in common: three weights, a publisher of small buckets, and what all servers serve."""

from __future__ import annotations

from typing import Any

import torch

from reward_loop.config_sync import SyncConfig
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.publisher import RewardModelPublisher
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.sync.file_plane import FilePlane
from tests.sync.update_servers import UpdateServer

WEIGHTS = {
    "model.embed_tokens.weight": torch.arange(48, dtype=torch.float32).reshape(12, 4),
    "model.layers.0.mlp.up_proj.weight": torch.full((3, 4), 0.5, dtype=torch.bfloat16),
    "score.weight": torch.tensor([[1.0, -2.0, 3.0, -4.0]]),
}
HEAD = {"score.weight": WEIGHTS["score.weight"]}
DONE = ["version", "start", "init", "prepare", "transfer", "finish"]
HEAD_ONLY = RewardModelTrainingMode.HEAD_ONLY


def publisher(plane: FilePlane, *servers: UpdateServer, timeout_s: float = 20.0, **options: Any) -> RewardModelPublisher:
    settings = SyncConfig(timeout_s=timeout_s, drain_timeout_s=1.0)
    control = ControlPlane([server.url for server in servers])
    # Several buckets of a tensor, several tensors of a bucket.
    return RewardModelPublisher(control, plane, settings=settings, bucket_bytes=128, **options)


def assert_all_serve(servers: tuple[UpdateServer, ...], version: int, weights: dict[str, torch.Tensor]) -> None:
    for server in servers:
        assert server.version == version
        assert server.session is None
        assert server.weights.keys() == weights.keys()
        for name, tensor in weights.items():
            assert torch.equal(server.weights[name], tensor)
