"""Batches whose tensors lie on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from reward_loop import RewardLoopManager
from tests.fakes import config_of, token_batch


@pytest.mark.gpu
def test_a_batch_on_the_device_is_scored_and_its_rewards_can_go_back(tokenizer_path: str) -> None:
    data = token_batch(["one", "three"])
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    with RewardLoopManager(config, compute_score=lambda solution_str: float(len(solution_str))) as manager:
        expected = manager.compute_rm_score(data).batch
        scored = manager.compute_rm_score(data.to("cuda")).to("cuda").batch
    assert expected is not None
    assert scored is not None
    assert scored["rm_scores"].device.type == "cuda"
    assert torch.equal(scored["rm_scores"].cpu(), expected["rm_scores"])
