"""Servers that sample from policies: started when they are needed, ended with the sampler."""

from __future__ import annotations

from functools import partial

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.runtime.policy_servers import PolicyServers
from reward_loop.rinker.runtime.settings import VLLMServerSettings
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.types import ModelInput, SamplingParams
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.processes import wait_until_gone
from tests.serving.fake_servers import fake_command

CALL = SampleCall(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1))
SETTINGS = VLLMServerSettings(count=2, max_model_len=64)


class Started:
    """Makes servers without a model, and keeps them."""

    def __init__(self) -> None:
        self.servers: list[VLLMServer] = []

    def __call__(self, spec: ServerSpec) -> VLLMServer:
        self.servers.append(VLLMServer(spec, build=fake_command()))
        return self.servers[-1]


async def test_servers_start_with_the_first_call_and_end_with_the_sampler() -> None:
    started = Started()
    sampler = PolicyServers(SETTINGS, "bfloat16", started)
    assert not started.servers
    for _ in range(2):
        with pytest.raises(RequestFailedError, match="is no vLLM server"):  # which these really are not
            await sampler.sample(Snapshot("one", "model"), CALL)
    first, second = (server.spec for server in started.servers)
    assert (first.model, first.dtype, first.max_model_len, first.replica, second.replica) == ("model", "bfloat16", 64, 0, 1)
    pids = [server.pid for server in started.servers]
    await sampler.close()
    wait_until_gone(pids)
    with pytest.raises(RequestFailedError, match="closed"):
        await sampler.sample(Snapshot("other", "other-model"), CALL)


async def test_one_base_model_too_many_is_refused() -> None:
    sampler = PolicyServers(VLLMServerSettings.model_validate({"servers": ["127.0.0.1:9"], "calls": {}}))
    with pytest.raises(RequestFailedError, match="no server answered"):
        await sampler.sample(Snapshot("one", "model"), CALL)
    with pytest.raises(RequestFailedError, match="run model, and other-model would be one too many"):
        await sampler.sample(Snapshot("other", "other-model"), CALL)
    await sampler.close()


async def test_servers_that_do_not_start_are_an_error_that_says_why() -> None:
    sampler = PolicyServers(SETTINGS, make=partial(VLLMServer, build=fake_command("ill")))
    with pytest.raises(RequestFailedError, match=r"no vLLM servers for model: .*MemoryError: 12 GiB are wanted") as caught:
        await sampler.sample(Snapshot("one", "model"), CALL)
    assert caught.value.category == "server"
    await sampler.close()
