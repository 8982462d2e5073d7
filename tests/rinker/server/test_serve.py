"""A server in a process of its own: what it says, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from reward_loop.errors import RequestFailedError
from tests.processes import ROOT

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.types import AdamParams, ModelSpec

PROGRAM = """
from reward_loop.rinker.server.serve import run_server
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.recording_backend import RecordingBackend

class Closing(RecordingBackend):
    async def close(self):
        print("closed", flush=True)

run_server(Closing, ServerSettings(port=0), lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_is_and_ends_in_peace(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(number)
        assert process.stdout.read() == "closed\n"
        assert process.wait(timeout=10) == 0


OFFICIAL_CLIENT = """
import os, sys
import tinker

service = tinker.ServiceClient(base_url=sys.argv[1], api_key="tml-test")
sampler = service.create_sampling_client(base_model="base").result()
prompt, params = tinker.ModelInput.from_ints([1]), tinker.SamplingParams(max_tokens=1)
print(len(sampler.sample(prompt, 2, params).result().sequences), flush=True)
sys.stdin.readline()
try:
    sampler.sample(prompt, 2, params).result(timeout=1)
except Exception as error:
    print(type(error).__name__, flush=True)
os._exit(0)  # what the SDK still tries in the background would go on for minutes
"""


def test_the_official_client_gives_up_on_a_server_that_was_killed() -> None:
    environment = {**os.environ, "TINKER_TELEMETRY": "0"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with subprocess.Popen(
            [sys.executable, "-c", OFFICIAL_CLIENT, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            assert client.stdout.readline() == "2\n"
            server.kill()
            server.wait(timeout=10)
            client.stdin.write("go on\n")
            client.stdin.flush()
            assert client.stdout.readline() == "TimeoutError\n"


def test_our_client_gives_up_on_a_server_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()

        async def train() -> None:
            backend = HttpBackend(url, settings=HttpSettings(unreachable_s=0.2))
            model = await backend.create_model(ModelSpec("base"))
            server.kill()
            try:
                await backend.optim_step(model, 1, AdamParams())
            finally:
                await backend.close()

        with pytest.raises(RequestFailedError, match="can't be reached") as failed:
            asyncio.run(train())
        assert failed.value.category == "server"
