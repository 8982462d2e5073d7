"""Servers whose weights are replaced by those of a directory, good or bad."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from reward_loop.serving.server import VLLMServer
from tests.vllm_servers import ask

pytestmark = pytest.mark.vllm


@pytest.fixture
def not_finite(reward_server: VLLMServer, tmp_path: Path) -> str:
    """The reward model with a head of NaN."""
    directory = shutil.copytree(reward_server.spec.model, tmp_path / "not_finite")
    weights = load_file(directory / "model.safetensors")
    weights["score.weight"] = torch.full_like(weights["score.weight"], torch.nan)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return str(directory)


async def reload(server: VLLMServer, directory: str) -> tuple[int, dict[str, Any]]:
    """Tell the server to load the weights of this directory."""
    return await ask(server.url, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": directory}})


async def test_scores_that_are_not_finite_are_the_servers_fault_and_are_named(reward_server: VLLMServer, not_finite: str) -> None:
    request = {"input": ["yes", "no"], "normalize": False}
    before = await ask(reward_server.url, "/score", request)
    assert (await reload(reward_server, not_finite))[0] == 200
    try:
        status, reply = await ask(reward_server.url, "/score", request)
    finally:
        assert (await reload(reward_server, reward_server.spec.model))[0] == 200
    assert status == 500
    assert (reply["error"]["type"], [bad["index"] for bad in reply["error"]["inputs"]]) == ("not_finite", [0, 1])
    assert "input 0: its score is" in reply["error"]["message"]
    assert await ask(reward_server.url, "/score", request) == before


async def test_a_directory_that_is_not_there_leaves_the_weights(reward_server: VLLMServer, tmp_path: Path) -> None:
    before = await ask(reward_server.url, "/score", {"input": "yes"})
    status, reply = await reload(reward_server, str(tmp_path / "nothing"))
    assert status == 500
    assert "is no directory" in reply["error"]["message"]
    assert await ask(reward_server.url, "/score", {"input": "yes"}) == before
