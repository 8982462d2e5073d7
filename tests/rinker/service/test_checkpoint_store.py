from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import ItemsView
from dataclasses import replace
from pathlib import Path

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore, Saved
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.processes import ROOT
from tests.rinker.engine.models import names

SAVED = Saved(ModelSpec("base", lora=LoraConfig(rank=4, seed=1)), version=3, ttl_seconds=60, user_metadata={"run": "a"})
PATH = CheckpointPath("m", "weights", "one")


async def write(
    store: CheckpointStore, text: str, path: CheckpointPath = PATH, *, saved: Saved = SAVED, overwrite: bool = False
) -> None:
    async with store.writing(path, saved, overwrite=overwrite) as folder:
        folder.mkdir()
        (folder / "file").write_text(text)


def text_of(store: CheckpointStore) -> str:
    return (store.find(PATH)[0] / "file").read_text()


async def test_what_was_written_is_found_with_what_it_is_of(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "not there yet")
    await write(store, "first")
    assert text_of(store) == "first"
    assert store.find(PATH)[1] == SAVED


async def test_a_name_that_is_taken_is_refused_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await write(store, "first")
    with pytest.raises(RequestFailedError, match=r"tinker://m/weights/one exists; choose another name, or set overwrite=True"):
        await write(store, "second")
    assert text_of(store) == "first"
    await write(store, "second", overwrite=True)
    assert text_of(store) == "second"
    assert names(tmp_path / "m" / "weights") == ["one"]


async def test_one_that_is_cancelled_while_it_gets_its_name_gets_it_whole_before_anything_is_cleared_away(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(dict[str, str]):
        """Takes its time to be written down, which happens in the thread that gives the checkpoint its name."""

        def items(self) -> ItemsView[str, str]:  # type: ignore[override]
            begun.set()
            assert go_on.wait(20)
            return super().items()

    store = CheckpointStore(tmp_path)
    await write(store, "first")
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write(store, "second", saved=replace(SAVED, user_metadata=Slow()), overwrite=True))
        assert await asyncio.to_thread(begun.wait, 20)
        for _ in range(2):
            writing.cancel()
            await asyncio.wait([writing], timeout=0.01)
            assert not writing.done()
        go_on.set()
    assert writing.cancelled()
    assert text_of(store) == "second"
    assert names(tmp_path / "m" / "weights") == ["one"]


KILLED = """
import asyncio, os, signal, sys
from reward_loop.rinker.service.checkpoint_store import CheckpointStore
from tests.rinker.service.test_checkpoint_store import PATH, SAVED

async def killed():
    async with CheckpointStore(sys.argv[1]).writing(PATH, SAVED, overwrite=False) as folder:
        folder.mkdir()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(killed())
"""


async def test_what_a_killed_process_left_goes_when_another_writes_whichever_model(tmp_path: Path) -> None:
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False, timeout=120)
    [left] = names(tmp_path / "m" / "weights")
    assert left.startswith(".unfinished-")
    await write(CheckpointStore(tmp_path), "text", CheckpointPath("another", "sampler_weights", "one"))
    assert names(tmp_path / "m" / "weights") == []


async def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await write(store, "first")

    async def fail() -> None:
        async with store.writing(PATH, SAVED, overwrite=True) as folder:
            folder.mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert text_of(store) == "first"
    assert [path.name for path in (tmp_path / "m" / "weights").iterdir()] == ["one"]


async def test_checkpoints_are_listed_and_deleted(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert list(store.all()) == []
    paths = [
        CheckpointPath("a", "weights", "1"),
        CheckpointPath("a", "sampler_weights", "1"),
        CheckpointPath("b", "weights", "2"),
    ]
    for path in paths:
        await write(store, "text", path)
    (tmp_path / "a" / "weights" / ".unfinished-x").mkdir()
    assert {path for path, _ in store.all()} == set(paths)
    assert {path for path, _ in store.all("b")} == {paths[2]}
    store.delete(paths[2])
    assert list(store.all("b")) == []
    with pytest.raises(RequestFailedError, match="there is no checkpoint tinker://b/weights/2"):
        store.delete(paths[2])


@pytest.mark.parametrize(
    "about", ["", "{}", "5", '{"spec": 5}', '{"spec": {}}', '{"spec": {"base_model": "b", "lora": {"rank": "x", "y": 1}}}']
)
async def test_a_folder_that_was_spoilt_is_the_servers_error(tmp_path: Path, about: str) -> None:
    store = CheckpointStore(tmp_path)
    await write(store, "text")
    (tmp_path / "m" / "weights" / "one" / "rinker.json").write_text(about)
    with pytest.raises(RequestFailedError, match=r"rinker.json can't be read") as failed:
        store.find(PATH)
    assert failed.value.category == "server"


async def test_a_directory_that_cant_be_written_is_the_servers_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RequestFailedError, match="can't be written") as failed:
        await write(CheckpointStore(tmp_path / "file"), "text")
    assert failed.value.category == "server"
