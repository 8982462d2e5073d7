"""A run whose server is killed goes on, with the next one, to the same end as one that nothing happened to."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl
from tests.processes import ROOT
from tests.rinker.rl.copy_task import CopyBuilder, CopyDataset, CopyEnv, copy_config
from tests.rinker.rl.runs import GROUPS, SIZE, Watching, every_group_once, lines, trained_groups

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

STEPS, KILLED_AFTER = 6, 3


class Server:
    """`rinker serve`; the next one listens where the one before it did, and has its checkpoints."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = 0
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Start one, and wait until it listens."""
        settings = [f"checkpoints={self._directory}", f"server.port={self._port}", "engine.device=cpu"]
        command = [sys.executable, "-m", "reward_loop.cli.rinker.main", "serve", *settings]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[0]
        self._port = int(self.url.rpartition(":")[2])
        return self.process

    def kill(self) -> None:
        """End it as the kernel ends one that takes too much memory."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL


@contextmanager
def served(directory: Path) -> Generator[Server]:
    """Give a server."""
    server = Server(directory)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            server.kill()


class Killing(Watching):
    """Kills the server between two steps, once."""

    def __init__(self, server: Server, *, for_good: bool = False) -> None:
        super().__init__()
        self._server, self._for_good, self._killed = server, for_good, False

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().on_step(step, metrics)
        if step == KILLED_AFTER and not self._killed:
            self._killed = True
            self._server.kill()
            if not self._for_good:
                self._server.start()


def config(log_path: Path, model: str, **service: object) -> RLConfig:
    return copy_config(log_path, model, batch_size=GROUPS, group_size=SIZE, save_every=2, service=service)


def data() -> CopyBuilder:
    return CopyBuilder(CopyDataset(STEPS, GROUPS, SIZE, CopyEnv))


def test_a_run_whose_server_is_killed_ends_like_an_undisturbed_one(tmp_path: Path, copy_model: str) -> None:
    plain, disturbed = tmp_path / "plain", tmp_path / "disturbed"
    train_rl(config(plain, copy_model, engine={"device": "cpu"}), data=data())
    with served(tmp_path / "weights") as server:
        watching = Killing(server)
        result = train_rl(config(disturbed, copy_model, base_url=server.url), data=data(), observer=watching)
    assert result.steps == STEPS
    assert [event for event in watching.events if event.startswith("rl")] == [f"rl 0/{STEPS}", f"rl 2/{STEPS}"]
    assert [line["step"] for line in lines(disturbed, "metrics.jsonl")] == list(range(STEPS))
    assert trained_groups(disturbed) == every_group_once(STEPS)
    rewards = [[line["reward/total"] for line in lines(log, "metrics.jsonl")] for log in (plain, disturbed)]
    assert rewards[0] == rewards[1]


def test_a_server_that_never_comes_back_ends_the_run(tmp_path: Path, copy_model: str) -> None:
    impatient = {"restarts": 1, "http": {"unreachable_s": 0.2, "first_pause_s": 0.05, "farewell_s": 0.2}}
    with served(tmp_path / "weights") as server:
        watching = Killing(server, for_good=True)
        settings = config(tmp_path / "run", copy_model, base_url=server.url, **impatient)
        with pytest.raises(RequestFailedError, match="can't be reached") as failed:
            train_rl(settings, data=data(), observer=watching)
    assert failed.value.category == "server"
    assert watching.events[-1] == f"step {KILLED_AFTER}"
