"""Servers hold one snapshot at a time: who goes together, and who waits."""

from __future__ import annotations

import asyncio

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.sampling.vllm_turns import SnapshotTurns

A, B = Snapshot("a", "model"), Snapshot("b", "model")


class Servers:
    """What was served, and what runs."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.running: list[str] = []
        self.together: list[tuple[str, ...]] = []
        self.trouble: Exception | None = None
        self.go_on = asyncio.Event()
        self.turns = SnapshotTurns(self.serve)

    async def serve(self, snapshot: Snapshot) -> None:
        await asyncio.sleep(0)
        assert not self.running
        if self.trouble is not None:
            raise self.trouble
        self.served.append(snapshot.id)

    async def call(self, snapshot: Snapshot) -> None:
        async with self.turns.of(snapshot):
            self.running.append(snapshot.id)
            self.together.append(tuple(self.running))
            await self.go_on.wait()
            self.running.remove(snapshot.id)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_calls_of_one_snapshot_run_together_after_one_change() -> None:
    servers = Servers()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(servers.call(A))
        await settled()
        assert servers.running == ["a", "a", "a"]
        servers.go_on.set()
    assert servers.served == ["a"]


async def test_another_snapshot_waits_until_what_runs_has_ended_and_is_not_overtaken() -> None:
    servers = Servers()
    async with asyncio.TaskGroup() as tasks:
        for snapshot in (A, B, A, B):
            tasks.create_task(servers.call(snapshot))
            await settled()
        assert servers.running == ["a"]  # the second call of A is behind B
        servers.go_on.set()
    assert servers.served == ["a", "b", "a"]
    assert all(len(set(names)) == 1 for names in servers.together)


async def test_a_change_that_fails_is_the_error_of_those_who_wait_and_is_tried_anew() -> None:
    servers = Servers()
    servers.go_on.set()
    servers.trouble = RequestFailedError("no server", category="server")
    with pytest.raises(RequestFailedError, match="no server"):
        await servers.call(A)
    servers.trouble = None
    await servers.call(A)
    assert servers.served == ["a"]


async def test_who_leaves_while_waiting_holds_nobody_up() -> None:
    servers = Servers()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(servers.call(A))
        await settled()
        leaver = tasks.create_task(servers.call(B))
        await settled()
        leaver.cancel()
        servers.go_on.set()
    await servers.call(A)
    assert servers.turns.idle


async def test_who_leaves_as_its_turn_comes_is_not_counted() -> None:
    servers = Servers()
    servers.go_on.set()

    async def leave() -> None:
        async with servers.turns.of(A):
            raise AssertionError("it had left")

    leaver = asyncio.create_task(leave())
    while servers.served != ["a"]:  # noqa: ASYNC110 - the moment after it, before anybody else
        await asyncio.sleep(0)
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    async with asyncio.timeout(1):
        await servers.call(B)


async def test_closing_fails_those_who_wait_for_a_change() -> None:
    started = asyncio.Event()

    async def never(_: Snapshot) -> None:
        started.set()
        await asyncio.Event().wait()

    turns = SnapshotTurns(never)

    async def call() -> None:
        async with turns.of(A):
            pass

    waiting = asyncio.create_task(call())
    await started.wait()
    await turns.close()
    with pytest.raises(RequestFailedError, match="closed"):
        await waiting
