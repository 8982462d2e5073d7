"""Scores of real servers, against transformers."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes import tiny_models
from reward_loop.serving.inside.pooling import Pooling
from reward_loop.serving.process_tree import below
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.serving.inside.reference import Reference
from tests.vllm_servers import MAX_TOKENS, VLLMServers, ask

pytestmark = pytest.mark.vllm

TEXTS = [
    "yes",
    "What is six times seven? The answer is 42.",
    "Fuchs 狐 🦊\u200d\x00\n\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "seven " * 80,
]


async def scores(server: VLLMServer, inputs: object, **fields: object) -> list[Any]:
    """Return the scores that the server gives, in order."""
    status, body = await ask(server.url, "/score", {"input": inputs, "normalize": False, **fields})
    assert status == 200, body
    assert [item["index"] for item in body["data"]] == list(range(len(body["data"])))
    return [item["score"] for item in body["data"]]


def assert_equal(found: object, expected: torch.Tensor) -> None:
    """Assert that a score is the expected one, within 1e-4."""
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-4)


@pytest.fixture
def labels_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A reward model with three labels that scores every token."""
    model = vllm_servers.model("labels", functools.partial(tiny_models.reward_model, labels=3))
    return vllm_servers.running(ServerSpec(model, "labels", "discriminative", max_model_len=MAX_TOKENS, pooling="ALL"))


async def test_one_label_is_the_logit_at_the_last_token(reward_server: VLLMServer) -> None:
    reference = Reference(reward_server.spec.model)
    for text, score in zip(TEXTS, await scores(reward_server, TEXTS), strict=True):
        assert_equal(score, reference.logits(text)[-1, 0])


async def test_token_ids_score_as_their_text_and_are_counted(reward_server: VLLMServer) -> None:
    ids = [Reference(reward_server.spec.model).ids(text) for text in TEXTS]
    assert_equal(await scores(reward_server, ids), torch.tensor(await scores(reward_server, TEXTS)))
    _, body = await ask(reward_server.url, "/score", {"input": ids})
    tokens = sum(map(len, ids))
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert body["model"] == "reward"


async def test_scores_are_normalized_unless_asked_otherwise(reward_server: VLLMServer) -> None:
    _, body = await ask(
        reward_server.url, "/score", {"input": TEXTS[0], "model": "reward", "n_labels": 1, "pooling_type": "last"}
    )
    assert_equal(body["data"][0]["score"], Reference(reward_server.spec.model).logits(TEXTS[0])[-1, 0].sigmoid())


async def test_an_input_as_long_as_the_model_takes_is_scored(reward_server: VLLMServer) -> None:
    ids = [5 + at % 300 for at in range(MAX_TOKENS)]
    assert_equal((await scores(reward_server, ids))[0], Reference(reward_server.spec.model).logits(ids)[-1, 0])


async def test_many_inputs_keep_their_order(reward_server: VLLMServer) -> None:
    inputs = [[5 + at % 300, 6] for at in range(300)]
    many = await scores(reward_server, inputs)
    reference = Reference(reward_server.spec.model)
    for at in (0, 1, 150, 299):
        assert_equal(many[at], reference.logits(inputs[at])[-1, 0])


@pytest.mark.parametrize("asked", ["ALL", "LAST", "CLS", "MEAN"])
async def test_a_server_of_every_token_gives_each_pooling_of_each_label(labels_server: VLLMServer, asked: Pooling) -> None:
    reference = Reference(labels_server.spec.model)
    for text, score in zip(TEXTS, await scores(labels_server, TEXTS, pooling_type=asked, n_labels=3), strict=True):
        logits = reference.logits(text)
        assert_equal(score, {"ALL": logits, "LAST": logits[-1], "CLS": logits[0], "MEAN": logits.mean(dim=0)}[asked])


@pytest.fixture
def mean_server(vllm_servers: VLLMServers) -> Iterator[VLLMServer]:
    """A reward model with three labels, pooled over all tokens; ends with its test."""
    model = vllm_servers.model("labels", functools.partial(tiny_models.reward_model, labels=3))
    server = vllm_servers.running(
        ServerSpec(model, "mean", "discriminative", max_model_len=MAX_TOKENS, pooling="MEAN", max_restarts=0)
    )
    yield server
    vllm_servers.stop(server)


def engine_of(server: VLLMServer) -> int:
    """Return the process of the server that computes."""
    [engine] = [child for child in below(server.pid) if "EngineCore" in Path(f"/proc/{child}/cmdline").read_text()]
    return engine


async def test_a_server_of_the_mean_gives_it_and_fails_all_who_wait_when_its_engine_dies(mean_server: VLLMServer) -> None:
    reference = Reference(mean_server.spec.model)
    for text, score in zip(TEXTS, await scores(mean_server, TEXTS), strict=True):
        assert_equal(score, reference.logits(text).mean(dim=0))
    engine = engine_of(mean_server)
    os.kill(engine, signal.SIGSTOP)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ask(mean_server.url, "/score", {"input": TEXTS}))
        await ask(mean_server.url, "/health")  # the server has read what came before it
        os.kill(engine, signal.SIGKILL)
    status, reply = waiting.result()
    assert status == 500
    assert "EngineCore" in reply["error"]["message"]


async def test_a_process_model_scores_each_step_with_each_label(process_server: VLLMServer) -> None:
    reference = Reference(process_server.spec.model)
    tag = process_server.spec.step_tag_id
    texts = [f"first{tiny_models.STEP_TAG}second{tiny_models.STEP_TAG}", f"one{tiny_models.STEP_TAG} and no more", "no step"]
    steps = await scores(process_server, texts, pooling_type="STEP", n_labels=2)
    assert [len(each) for each in steps] == [2, 1, 0]
    for text, each in zip(texts[:2], steps, strict=False):
        logits = reference.logits(text)
        assert_equal(each, logits[[token == tag for token in reference.ids(text)]])


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        ({"input": "a", "model": "other"}, 404, "unknown_model", "'reward' is"),
        ({"input": "a", "n_labels": 3}, 400, "bad_request", "n_labels=3, but reward gives 1"),
        ({"input": "a", "pooling_type": "MEAN"}, 400, "bad_request", "--pooler-config.pooling_type MEAN"),
        ({"input": [[1], [10**6]]}, 400, "bad_input", "input 1: Token id 1000000 is out of vocabulary"),
        ({"input": [[1], [-1]]}, 400, "bad_input", "input 1: Token id -1 is out of vocabulary"),
        (
            {"input": [[1], [1] * (MAX_TOKENS + 9)]},
            400,
            "bad_input",
            f"input 1: has {MAX_TOKENS + 9} tokens, more",
        ),
        ({"input": ["a", "a b " * 600]}, 400, "bad_input", f"tokens, more than the {MAX_TOKENS} tokens that the server takes"),
        ({"input": ["a", "a b " * 10**5]}, 400, "bad_input", f"has 400000 characters, more than the {MAX_TOKENS} tokens"),
    ],
)
async def test_a_bad_request_says_what_is_wrong_and_where(
    reward_server: VLLMServer, body: dict[str, Any], status: int, kind: str, words: str
) -> None:
    found, reply = await ask(reward_server.url, "/score", body)
    error = reply["error"]
    assert (found, error["type"], error["code"]) == (status, kind, status)
    assert words in error["message"]
    assert error.get("index") == (1 if kind == "bad_input" else None)


async def test_every_bad_input_of_a_batch_is_named(reward_server: VLLMServer) -> None:
    _, reply = await ask(reward_server.url, "/score", {"input": ["a", "b " * 700, "c", "d " * 700]})
    assert [bad["index"] for bad in reply["error"]["inputs"]] == [1, 3]
