"""Our own loop learns from random weights to copy three digits, by reward alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_loop import rinker
from tests.rinker.conformance.copy_digits import CopyDigits
from tests.rinker.conformance.tiny_policy import tiny_policy


def rewards_of(seed: int, directory: Path) -> list[float]:
    base_model = tiny_policy(directory / "policy", seed=seed)
    with rinker.ServiceClient(checkpoint_dir=directory / "checkpoints") as service:
        client = service.create_training_client(base_model).result()
        return CopyDigits(seed=seed).train(rinker, client, 150)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_policy_learns_to_copy_three_digits(seed: int, tmp_path: Path) -> None:
    rewards = rewards_of(seed, tmp_path)
    assert sum(rewards[:10]) / 10 < 0.15
    assert sum(rewards[-10:]) / 10 > 0.8
