"""Servers that sample from policies: started when they are needed, ended with the sampler."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.runtime.policy_servers import PolicyServers
from reward_loop.rinker.runtime.settings import VLLMServerSettings
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.types import ModelInput, SamplingParams
from reward_loop.serving.command import Command
from reward_loop.serving.server import BuildCommand, VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.processes import wait_until_gone
from tests.serving.fake_servers import fake_command

CALL = SampleCall(ModelInput.from_ints([1]), 1, SamplingParams(max_tokens=1))
SETTINGS = VLLMServerSettings(count=2, max_model_len=64)


class Started:
    """Makes servers without a model by these commands, one after the other, and keeps them."""

    def __init__(self, *commands: BuildCommand) -> None:
        self.servers: list[VLLMServer] = []
        self._commands = commands

    def __call__(self, spec: ServerSpec) -> VLLMServer:
        self.servers.append(VLLMServer(spec, build=self._commands[len(self.servers)]))
        return self.servers[-1]


def never_ready(_: ServerSpec, port: int, run_dir: str, update_dir: str) -> Command:
    return Command((sys.executable, "-c", "import time; time.sleep(3600)"), {})


async def test_servers_start_with_the_first_call_and_end_with_the_sampler() -> None:
    started = Started(fake_command(), fake_command())
    sampler = PolicyServers(SETTINGS, "bfloat16", started, trust_remote_code=True)
    assert not started.servers
    for _ in range(2):
        with pytest.raises(RequestFailedError, match="is no vLLM server"):  # which these really are not
            await sampler.sample(Snapshot("one", "model"), CALL)
    first, second = (server.spec for server in started.servers)
    assert (first.model, first.dtype, first.max_model_len, first.replica, second.replica) == ("model", "bfloat16", 64, 0, 1)
    assert first.trust_remote_code
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


async def test_servers_that_do_not_start_take_none_of_another_model_with_them() -> None:
    started = Started(fake_command(), fake_command("ill"))
    sampler = PolicyServers(VLLMServerSettings(max_models=2), make=started)
    with pytest.raises(RequestFailedError, match="is no vLLM server"):
        await sampler.sample(Snapshot("one", "model"), CALL)
    with pytest.raises(RequestFailedError, match="no vLLM servers for other-model"):
        await sampler.sample(Snapshot("other", "other-model"), CALL)
    assert [bool(server.pid) for server in started.servers] == [True, False]
    await sampler.close()


async def test_a_call_that_is_cancelled_while_servers_start_leaves_none_behind() -> None:
    started = Started(fake_command(), never_ready)
    sampler = PolicyServers(SETTINGS, make=started)
    call = asyncio.create_task(sampler.sample(Snapshot("one", "model"), CALL))
    while [server.state for server in started.servers] != ["awake", "starting"] or not started.servers[1].pid:  # noqa: ASYNC110 - processes
        await asyncio.sleep(0.01)
    pids = [server.pid for server in started.servers]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    wait_until_gone(pids)
    await sampler.close()
