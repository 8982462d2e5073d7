"""Small models on disk, made once; one thread, as two would wait for each other most of the time and round sums otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.rinker.engine.models import write_language_model, write_reward_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen2 of 16 tokens, 32 positions and an unembedding of its own."""
    return str(write_language_model(tmp_path_factory.mktemp("language-model")))


@pytest.fixture(scope="session")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen2 with a head of one score."""
    return str(write_reward_model(tmp_path_factory.mktemp("reward-model")))
