"""`reward-loop router`: one address in front of servers that the user runs, until it is told to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from tests.processes import ROOT
from tests.router.scorers import Scorer, score_of

COMMAND = [sys.executable, "-m", "reward_loop.cli.main", "router"]


@contextmanager
def running(*words: str, **environment: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The command, and the URL that it says."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            found = re.match(r"(http://\S+) is in front of \d+ server", process.stdout.readline())
            assert found is not None
            yield process, found[1]
        finally:
            process.terminate()


def score(url: str, model: str, **headers: str) -> tuple[int, str]:
    """Status and body of one question; tried again while the servers are new."""
    body = f'{{"model": "{model}", "input": "hello"}}'.encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/score", body, headers), timeout=30.0) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_several_models_stand_behind_one_address_until_it_is_ended() -> None:
    with (
        Scorer() as one,
        Scorer() as other,
        running("--model", "rm", "--replica", one.url, "--replica", f"org/judge={other.url}") as (process, url),
    ):
        for model in ("rm", "org/judge"):
            status, body = score(url, model)
            assert (status, str(score_of("hello")) in body) == (200, True)
        status, body = score(url, "nobody")
        assert status == 404
        assert "org/judge" in body
        process.send_signal(signal.SIGTERM)
        assert process.wait(30.0) == 130


def test_settings_are_those_of_the_routers_section_and_tokens_come_from_the_environment() -> None:
    with Scorer() as one, running("token_env=FRONT", "--model", "rm", "--replica", one.url, FRONT="s3cret") as (_, url):
        assert score(url, "rm")[0] == 401
        assert score(url, "rm", Authorization="Bearer s3cret")[0] == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--replica URL"),
        (["--replica", "http://127.0.0.1:1"], "--model NAME"),
        (["--model", "rm", "http://127.0.0.1:1"], "--replica URL"),
        (["--model", "rm", "--replica", "https://127.0.0.1:1"], "http://host:port"),
        (["--model", "rm", "--replica", "a:1", "--replica", "a:1"], "already"),
        (["--model", "rm", "--replica", "http://127.0.0.1:1", "polcy=round_robin"], "policy"),
        (["--model", "rm", "--replica", "http://127.0.0.1:1", "token_env=NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(refused: Callable[..., str], words: list[str], said: str) -> None:
    assert said in refused("router", *words)


def test_nothing_outlives_the_command_when_it_is_killed() -> None:
    with running("--model", "rm", "--replica", "http://127.0.0.1:1") as (process, url):
        process.kill()
        process.wait()
        ends = time.monotonic() + 20.0
        while True:
            try:
                urllib.request.urlopen(f"{url}/metrics", timeout=5.0).close()
            except OSError:
                break
            assert time.monotonic() < ends, "the router still answers"
            time.sleep(0.05)
