"""A real server's worker in updates: what it loads, keeps, and goes back to. It serves a policy whose output layer is tied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2ForCausalLM

from recipes import tiny_models
from reward_loop.serving.inside.update_directory import UpdateDirectory
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.serving.inside.trainer import Trainer
from tests.vllm_servers import MAX_TOKENS, VLLMServers, ask

pytestmark = pytest.mark.vllm

State = Mapping[str, torch.Tensor]
PROMPT = list(range(5, 45))
EMBEDDING = "model.embed_tokens.weight"


def tied(path: Path) -> Path:
    """Write a judge whose output layer is its embedding."""
    untyped: Any = Qwen2ForCausalLM
    model = untyped.from_pretrained(tiny_models.judge(path))
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(path)
    return path


class Policy:
    """The server, and the model that it started with."""

    def __init__(self, server: VLLMServer, updates: Path) -> None:
        self.server = server
        self.directory = UpdateDirectory(next(updates.iterdir()))
        self.weights = load_file(Path(server.spec.model) / "model.safetensors")
        untyped: Any = Qwen2ForCausalLM
        self._reference = untyped.from_pretrained(server.spec.model, dtype=torch.float32).eval()

    def moved(self, seed: int) -> State:
        """Return the weights that it started with, each moved a little."""
        generator = torch.Generator().manual_seed(seed)
        return {name: each + 0.05 * torch.randn(each.shape, generator=generator) for name, each in self.weights.items()}

    async def version(self) -> int:
        """Return the version that serves."""
        return int((await ask(self.server.url, "/runtime_version"))[1]["version"])

    async def update(self, state: State, mode: str = "full") -> int:
        """Have these weights serve, and return their version."""
        version = await self.version() + 1
        assert (await Trainer(self.server.url, state, version, mode=mode).finished())["version"] == version
        return version

    async def told(self, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send the server a request."""
        return await ask(self.server.url, path, body, method="POST")

    async def serves(self, state: State, version: int) -> None:
        """Assert that it computes as transformers does with these weights, and calls them by this version."""
        self._reference.load_state_dict(state, strict=False)
        with torch.no_grad():
            expected = self._reference(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
        body = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0.0, "logprobs": 1, "model": self.server.spec.name}
        status, reply = await self.told("/v1/completions", body)
        assert status == 200, reply
        [logprob] = reply["choices"][0]["logprobs"]["token_logprobs"]
        assert logprob == pytest.approx(float(expected.max()), abs=1e-4)
        assert await self.version() == version


@pytest.fixture(scope="module")
def started(vllm_servers: VLLMServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policy]:
    """A server of this module's own, since others expect the weights that theirs started with."""
    model = vllm_servers.model("tied", tied)
    updates = tmp_path_factory.mktemp("updates")
    server = vllm_servers.running(ServerSpec(model, "tied", "generative", max_model_len=MAX_TOKENS, update_dir=str(updates)))
    yield Policy(server, updates)
    vllm_servers.stop(server)


@pytest.fixture
def policy(started: Policy, vllm_servers: VLLMServers) -> Policy:
    """The server, awake."""
    vllm_servers.running(started.server.spec)
    return started


async def test_a_tied_output_layer_computes_with_the_embedding_that_came(policy: Policy) -> None:
    moved = policy.moved(1)
    await policy.serves(moved, await policy.update({**moved, "lm_head.weight": moved[EMBEDDING]}))
    again = {**moved, EMBEDDING: 1.2 * moved[EMBEDDING]}
    await policy.serves(again, await policy.update({EMBEDDING: again[EMBEDDING]}, "lora"))


async def test_synced_weights_outlive_a_sleep(policy: Policy) -> None:
    moved = policy.moved(2)
    version = await policy.update(moved)
    for path in ("/sleep?level=1&mode=wait", "/wake_up"):
        assert (await policy.told(path))[0] == 200
    await policy.serves(moved, version)


async def test_a_sleeping_server_is_not_updated(policy: Policy) -> None:
    moved = policy.moved(3)
    version = await policy.update(moved)
    trainer = Trainer(policy.server.url, policy.weights, version + 1)
    await trainer.received()
    assert (await policy.told("/sleep?level=1&mode=wait"))[0] == 200
    assert (await policy.told("/finish_weight_update", trainer.finish))[0] == 503
    assert (await policy.told("/wake_up"))[0] == 200
    await policy.serves(moved, version)


async def test_a_commit_that_fails_leaves_what_served_before(policy: Policy) -> None:
    moved = policy.moved(4)
    version = await policy.update(moved)
    trainer = Trainer(policy.server.url, policy.weights, version + 1)
    await trainer.received()
    policy.directory.staged.unlink()  # loaded it can be still, as it is mapped, but not kept
    status, reply = await policy.told("/finish_weight_update", trainer.finish)
    assert (status, reply["error"]["type"]) == (500, "failed")
    assert "what served before serves again: FileNotFoundError" in reply["error"]["message"]
    await policy.serves(moved, version)
    await policy.serves(policy.weights, await policy.update(policy.weights))


async def test_an_update_is_taken_back_once(policy: Policy) -> None:
    before = policy.moved(5)
    version = await policy.update(before)
    part = {EMBEDDING: 0.7 * before[EMBEDDING]}
    await policy.update(part, "lora")
    await policy.serves({**before, **part}, version + 1)
    assert (await policy.told("/start_weight_update", {"session": "back"}))[0] == 200
    assert (await policy.told("/finish_weight_update", {"session": "back", "revert": True}))[0] == 200
    await policy.serves(before, version)
    assert (await policy.told("/start_weight_update", {"session": "again"}))[0] == 200
    status, reply = await policy.told("/finish_weight_update", {"session": "again", "revert": True})
    assert (status, reply["error"]["type"]) == (400, "refused")
    assert "no update to take back" in reply["error"]["message"]


async def test_no_room_for_an_update_is_told_and_changes_nothing(policy: Policy) -> None:
    version = await policy.version()
    trainer = Trainer(policy.server.url, policy.weights, version + 1)
    policy.directory.staged.mkdir()  # nothing can be written there
    try:
        with pytest.raises(AssertionError, match="staged"):
            await trainer.prepared()
    finally:
        policy.directory.staged.rmdir()
        trainer.communicator.close()
    assert (await ask(policy.server.url, "/runtime_version"))[1]["busy"] is None
    await policy.serves(policy.weights, await policy.update(policy.weights))
