"""What is asked of vLLM's engine for an update, and what becomes of its failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_loop.serving.inside.update_directory import UpdateDirectory
from reward_loop.serving.inside.update_engine import EngineFailed, UpdateEngine
from tests.serving.inside.fake_worker import FakeWorker


@pytest.fixture
def worker(tmp_path: Path) -> FakeWorker:
    return FakeWorker(UpdateDirectory(tmp_path))


@pytest.fixture
async def engine(worker: FakeWorker) -> UpdateEngine:
    return UpdateEngine(worker, dict, dict)


async def test_it_is_paused_with_empty_caches_and_resumed_whatever_happens(engine: UpdateEngine, worker: FakeWorker) -> None:
    seen = list[bool]()

    async def fails_while_paused() -> None:
        async with engine.paused(5):
            seen.append(worker.paused)
            raise KeyError

    with pytest.raises(KeyError):
        await fails_while_paused()
    assert seen == [True]
    assert worker.calls == ["pause wait clear", "resume"]


async def test_one_that_others_paused_or_that_sleeps_is_not_resumed(engine: UpdateEngine, worker: FakeWorker) -> None:
    worker.paused = True
    async with engine.paused(5):
        pass
    assert worker.paused


async def test_an_update_that_was_left_behind_is_ended_first(engine: UpdateEngine, worker: FakeWorker) -> None:
    await engine.begin()
    await engine.begin()
    assert worker.calls == ["start", "abort", "start"]


async def test_aborting_where_nothing_is_under_way_is_no_error(engine: UpdateEngine) -> None:
    await engine.abort("a")


async def test_a_failure_comes_with_the_engines_words(engine: UpdateEngine) -> None:
    with pytest.raises(EngineFailed, match="start_weight_update must be called before"):
        await engine.update({"phase": "prepare", "session": "a", "version": 1})


async def test_an_engine_that_dies_in_mid_commit_is_noticed(engine: UpdateEngine, worker: FakeWorker) -> None:
    worker.errored = True
    with pytest.raises(EngineFailed, match="engine is dead, so the server ends"):
        await engine.commit("1")
