"""What goes wrong with an update of two real servers: an error with a reason in its time, the old weights on both, then success.

The rows are those of the table of bad input that vLLM's own path was tried with: each killed or corrupted a server there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from recipes import tiny_models
from reward_loop.config_sync import SyncConfig
from reward_loop.errors import WeightSyncError
from reward_loop.scoring.reward_client import Score, ScoringRequest
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.serving.process_tree import below
from reward_loop.serving.server import VLLMServer
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.planes.gloo import GlooSender
from reward_loop.sync.planes.shared_memory import SharedMemorySender
from reward_loop.sync.publisher import RewardModelPublisher
from tests.vllm_servers import VLLMServers

pytestmark = pytest.mark.vllm

State = dict[str, torch.Tensor]
TEXTS = ["six times seven is 42", "the fox jumps over the fence", "I don't know"]
TIMEOUT_S = 20.0
SILENT_S = 3.0


@dataclass
class Fleet:
    """Two servers of one model, and what they are to score."""

    servers: list[VLLMServer]
    model: torch.nn.Module
    state: State = field(default_factory=dict)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def publisher(self, timeout_s: float = TIMEOUT_S) -> RewardModelPublisher:
        return create_reward_publisher(self.urls, timeout_s=timeout_s)

    def changed(self) -> State:
        """Return weights that nobody has seen."""
        return {name: weight + 0.05 * torch.randn_like(weight) for name, weight in self.model.state_dict().items()}

    def expected(self) -> list[float]:
        """Return the scores by transformers of the weights that should serve."""
        self.model.load_state_dict(self.state)
        ids = [tiny_models.tokenizer()(text, return_tensors="pt")["input_ids"] for text in TEXTS]
        with torch.no_grad():
            return [self.model(input_ids=each).logits[0, 0].item() for each in ids]

    def serves_what_it_should(self) -> None:
        """Every replica answers with the same version, and its scores are those of the weights that should serve."""
        versions = set()
        for server in self.servers:
            client = client_of(server)
            assert client.score_batch_sync(TEXTS, normalize=False) == pytest.approx(self.expected(), abs=1e-4)
            versions.add(version_of(server))
        assert len(versions) == 1

    def publish(self) -> int:
        """Publish correctly, and return the version."""
        new = self.changed()
        report = self.publisher().publish(new)
        self.state = new
        self.serves_what_it_should()
        return report.version


@pytest.fixture
def fleet(vllm_servers: VLLMServers) -> Fleet:
    from transformers import AutoModelForSequenceClassification

    servers = vllm_servers.synced()
    path = servers[0].spec.model
    found = Fleet(servers, AutoModelForSequenceClassification.from_pretrained(path, num_labels=1))
    found.publish()
    return found


def without(state: State, *names: str) -> State:
    return {name: weight for name, weight in state.items() if name not in names}


HEAD, QUERY, NORM = "score.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"
WRONG: dict[str, tuple[Callable[[State], State], str]] = {
    "unknown name": (
        lambda state: {**state, "model.layers.0.self_attn.query.weight": state[QUERY].clone()},
        "self_attn.query.weight",
    ),
    "wrong shape": (lambda state: {**state, HEAD: state[HEAD][:, :-1].clone()}, "score.weight"),
    "wrong type": (lambda state: {**state, NORM: state[NORM].double()}, "float64"),
    "NaN": (lambda state: {**state, QUERY: state[QUERY] * torch.nan}, QUERY),
    "infinity": (lambda state: {**state, HEAD: state[HEAD] / 0.0}, HEAD),
    "weights left out": (lambda state: without(state, NORM), NORM),
}


@pytest.mark.parametrize("row", WRONG)
def test_a_wrong_update_is_refused_with_its_reason_and_the_next_one_succeeds(fleet: Fleet, row: str) -> None:
    wrong, reason = WRONG[row]
    with pytest.raises(WeightSyncError, match=reason):
        fleet.publisher().publish(wrong(fleet.changed()))
    fleet.serves_what_it_should()
    fleet.publish()


def test_a_part_of_a_fused_group_is_refused(fleet: Fleet) -> None:
    state = fleet.changed()
    part = {name: state[name] for name in (HEAD, QUERY)}
    with pytest.raises(WeightSyncError, match=r"q_proj(.|\n)*k_proj"):
        fleet.publisher().publish(part, training_mode="lora")
    fleet.serves_what_it_should()
    fleet.publish()


class Corrupt(GlooSender):
    """Sends other bytes than were digested."""

    def send(self, index: int) -> None:
        self.buffer(index)[3] ^= 1
        super().send(index)


class Silent(SharedMemorySender):
    """Does not send for as long as anybody waits for it."""

    def send(self, index: int) -> None:
        time.sleep(SILENT_S + 2.0)
        super().send(index)


@pytest.mark.parametrize(("comm", "reason"), [(Corrupt, "other bytes"), (Silent, "within|in its time")])
def test_a_trainer_that_lies_or_never_sends_is_found_out(fleet: Fleet, comm: type[GlooSender], reason: str) -> None:
    publisher = RewardModelPublisher(ControlPlane(fleet.urls), comm(), settings=SyncConfig(timeout_s=SILENT_S))
    began = time.monotonic()
    with pytest.raises(WeightSyncError, match=reason):
        publisher.publish(fleet.changed())
    assert time.monotonic() - began < SILENT_S + 5.0
    fleet.serves_what_it_should()
    fleet.publish()


KILLED = """
import os, signal, sys
import torch
from recipes import tiny_models
from reward_loop.config_sync import SyncConfig
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.planes.gloo import GlooSender
from reward_loop.sync.publisher import RewardModelPublisher
from transformers import AutoModelForSequenceClassification

class Killed(GlooSender):
    def send(self, index):
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        super().send(index)

path, *urls = sys.argv[1:]
publisher = RewardModelPublisher(ControlPlane(urls), Killed(), settings=SyncConfig(timeout_s=60.0))
publisher.bucket_bytes = 64 << 10
publisher.publish(AutoModelForSequenceClassification.from_pretrained(path, num_labels=1).state_dict())
"""


def test_a_trainer_that_is_killed_in_mid_send_holds_up_nobody(fleet: Fleet) -> None:
    arguments = [sys.executable, "-c", KILLED, fleet.servers[0].spec.model, *fleet.urls]
    assert subprocess.run(arguments, check=False, timeout=60, capture_output=True).returncode == -signal.SIGKILL
    fleet.serves_what_it_should()
    began = time.monotonic()
    fleet.publish()  # though the session of the dead one would have lasted a minute
    assert time.monotonic() - began < TIMEOUT_S


class Slow(GlooSender):
    """Waits for a word before it sends."""

    def __init__(self, word: threading.Event) -> None:
        super().__init__()
        self.opened, self._word = threading.Event(), word

    def send(self, index: int) -> None:
        self.opened.set()
        self._word.wait(TIMEOUT_S)
        super().send(index)


def test_of_two_trainers_at_once_the_second_is_told_of_the_first(fleet: Fleet) -> None:
    word, new = threading.Event(), fleet.changed()
    comm = Slow(word)
    first = RewardModelPublisher(ControlPlane(fleet.urls), comm, settings=SyncConfig(timeout_s=TIMEOUT_S))
    thread = threading.Thread(target=first.publish, args=[new])
    thread.start()
    assert comm.opened.wait(TIMEOUT_S)
    with pytest.raises(WeightSyncError, match=str(os.getpid())):
        fleet.publisher().publish(fleet.changed())
    word.set()
    thread.join()
    fleet.state = new
    fleet.serves_what_it_should()


def test_an_older_version_is_refused(fleet: Fleet) -> None:
    version = fleet.publish()
    with pytest.raises(WeightSyncError, match=f"version.*{version}"):
        fleet.publisher().publish(fleet.changed(), version - 1)
    with pytest.raises(WeightSyncError, match=f"version.*{version}"):
        fleet.publisher().publish(fleet.changed(), version)
    fleet.serves_what_it_should()


def test_a_server_that_is_killed_in_mid_commit_comes_back_with_what_the_other_one_serves(fleet: Fleet) -> None:
    one, other = fleet.servers
    version, new = version_of(other), fleet.changed()
    [status] = Path(str(one.spec.update_dir)).rglob("status.json")

    def stop_and_kill() -> None:
        """Stop the engine as soon as it has everything; kill it when the other server has the new weights."""
        session = json.loads(status.read_text())["session"]
        while (found := json.loads(status.read_text()))["session"] == session or found["state"] != "received":
            time.sleep(0.0005)
        engine = below(one.pid)
        for pid in engine:
            os.kill(pid, signal.SIGSTOP)
        while version_of(other) == version:
            time.sleep(0.01)
        for pid in [*engine, one.pid]:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=stop_and_kill)
    killer.start()
    with pytest.raises(WeightSyncError, match=f"{one.url}.*taken back at {other.url}"):
        fleet.publisher(120.0).publish(new)
    killer.join()
    fleet.serves_what_it_should()
    assert version_of(one) == version
    fleet.publish()


async def test_under_load_no_request_fails_and_every_score_is_of_the_version_that_it_names(fleet: Fleet) -> None:
    states = {(await client_of(fleet.servers[0]).get_model_version()): fleet.expected()}
    scored: list[tuple[int, list[Score]]] = []
    done = asyncio.Event()

    async def ask(number: int) -> None:
        client = client_of(fleet.servers[number % 2])
        while not done.is_set():
            response, _ = await client.score(ScoringRequest(client.model_name, TEXTS, normalize=False))
            scored.append((response.metadata["version"], list(response.scores)))

    async with asyncio.TaskGroup() as tasks:
        for number in range(64):
            tasks.create_task(ask(number))
        for _ in range(20):
            fleet.state = fleet.changed()
            report = await asyncio.to_thread(fleet.publisher(60.0).publish, fleet.state)
            states[report.version] = fleet.expected()
        done.set()
    assert {version for version, _ in scored} == set(states)
    wrong = [(version, scores) for version, scores in scored if scores != pytest.approx(states[version], abs=1e-4)]
    assert wrong == []


def version_of(server: VLLMServer) -> int:
    return asyncio.run(client_of(server).get_model_version())


def client_of(server: VLLMServer) -> VLLMRewardClient:
    return VLLMRewardClient(base_url=server.url, model_name=server.spec.name)
