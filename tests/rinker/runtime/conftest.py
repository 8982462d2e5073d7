"""Models on disk, one thread, and an event loop that tests and the actors' owners share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reward_loop.loop_thread import LoopThread
from tests.one_thread import one_thread as one_thread
from tests.rinker.engine.models import write_language_model, write_reward_model


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen2 of 16 tokens."""
    return str(write_language_model(tmp_path_factory.mktemp("language-model")))


@pytest.fixture(scope="session")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen2 with a head of one score."""
    return str(write_reward_model(tmp_path_factory.mktemp("reward-model")))


async def _nothing() -> None:
    pass


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    """The event loop of what a module's tests share."""
    thread = LoopThread("learners and samplers of a test")
    yield thread
    thread.close(_nothing)
