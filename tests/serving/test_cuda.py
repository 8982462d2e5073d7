"""A reward model on a CUDA device: it scores, and gives its memory back while it sleeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recipes import tiny_models
from reward_loop import RewardModelManager, VLLMRewardClient

pytestmark = [pytest.mark.gpu, pytest.mark.vllm]

TEXTS = ["Six times seven is 42.", "ü 🦊 七"]


def used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


async def test_a_colocated_server_scores_like_before_and_frees_the_gpu_while_it_sleeps(tmp_path: Path) -> None:
    rollout: dict[str, Any] = {"tensor_model_parallel_size": 1, "gpu_memory_utilization": 0.2, "dtype": "float32"}
    model = {"path": str(tiny_models.reward_model(tmp_path / "rm"))}
    before = used_bytes()
    config = {"enable": True, "model": model, "rollout": rollout, "replicas": 1, "server": {"device": "cuda"}}
    with RewardModelManager({"reward_model": config}) as models:
        client = VLLMRewardClient(address=models.get_router_address())
        asleep = used_bytes() - before
        async with models.lease():
            first = await client.score_batch(TEXTS, normalize=False)
            awake = used_bytes() - before
        async with models.lease():
            assert await client.score_batch(TEXTS, normalize=False) == pytest.approx(first, abs=1e-4)
        await client.aclose()
    assert asleep < awake / 2
