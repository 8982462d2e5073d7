"""A reward model to be trained on token ids."""

from __future__ import annotations

import pytest

from tests.rinker.rl.copy_task import write_model


@pytest.fixture(scope="session")
def copy_reward_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model of 16 tokens; a head is new to it."""
    return write_model(tmp_path_factory.mktemp("reward"))
