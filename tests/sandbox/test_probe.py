"""The level is what the machine offers and the config asks for, or an error that says how to get there."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path

import pytest

from reward_loop.config import SandboxConfig
from reward_loop.errors import ConfigError
from reward_loop.sandbox.interpreter import closed_to_others, find_interpreter, open_bundle
from reward_loop.sandbox.local import configured_limits, open_local_sandbox
from reward_loop.sandbox.probe import Probe, choose_level, make_base
from reward_loop.sandbox.verdict import Limits

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="programs run as another user only where this process is root")


def machine(found: Probe, *levels: int) -> Probe:
    return Probe(levels, ("namespaces is missing: EPERM; run as root",), found.interpreter, frozenset())


def test_resource_limits_are_offered_everywhere(found: Probe) -> None:
    assert 0 in found.levels
    assert found.describe(0) == "level 0: resource limits"


def test_the_best_of_one_and_two_is_taken(found: Probe) -> None:
    assert choose_level(SandboxConfig(), machine(found, 0, 1)) == 1
    assert choose_level(SandboxConfig(), machine(found, 0, 1, 2, 3)) == 2
    assert choose_level(SandboxConfig(min_level=0), machine(found, 0, 3)) == 0


def test_the_level_that_was_asked_for_is_taken(found: Probe) -> None:
    assert choose_level(SandboxConfig(level=1), machine(found, 0, 1, 2, 3)) == 1
    assert choose_level(SandboxConfig(level=3), machine(found, 0, 1, 2, 3)) == 3


def test_a_level_below_min_level_is_refused_with_what_to_do(found: Probe) -> None:
    with pytest.raises(
        ConfigError, match=r"sandbox.min_level=2: programs would run at level 1.*namespaces is missing: EPERM; run as root"
    ):
        choose_level(SandboxConfig(min_level=2), machine(found, 0, 1))
    with pytest.raises(ConfigError, match=r"sandbox.min_level=1: programs would run at level 0"):
        choose_level(SandboxConfig(level=0), machine(found, 0, 1, 2))


def test_a_level_that_the_machine_lacks_is_refused_with_what_it_offers(found: Probe) -> None:
    with pytest.raises(ConfigError, match=r"sandbox.level=3: this machine offers the levels \[0, 1\]"):
        choose_level(SandboxConfig(level=3), machine(found, 0, 1))


async def test_the_level_is_logged_once_when_a_sandbox_opens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reward_loop.sandbox"):
        sandbox = await open_local_sandbox(SandboxConfig(min_level=0), 3)
        await sandbox.close()
    [record] = caplog.records
    assert record.getMessage() == f"sandbox: {sandbox.description}, 3 programs side by side, on {find_interpreter(None).path}"


async def test_a_sandbox_without_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 places"):
        await open_local_sandbox(SandboxConfig(), 0)


def test_the_limits_of_the_config_are_in_its_units() -> None:
    config = SandboxConfig(timeout_s=3, memory_mb=100, file_mb=2, max_processes=4, output_kb=8)
    assert configured_limits(config) == Limits(3, 100, 2, 4, 8192)


def test_an_interpreter_that_does_not_exist_or_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/nowhere/python does not exist.*install Python 3.9 or newer"):
        find_interpreter("/nowhere/python")
    (tmp_path / "python").write_text("#!/bin/sh\necho no\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ConfigError, match=r"sandbox\.python="):
        find_interpreter(str(tmp_path / "python"))


@AS_ROOT
def test_without_privileges_a_user_of_its_own_is_missing_and_nothing_breaks(found: Probe) -> None:
    bundle, base = open_bundle(), make_base()
    settings = {"main": "reward_loop.sandbox.inside.trial", "base": base, "bwrap": None, "readable": found.interpreter.folders}
    command = [*found.interpreter.command(), str(bundle), json.dumps(settings)]
    try:
        done = subprocess.run(command, pass_fds=[bundle], env={}, user=65534, group=65534, extra_groups=[], capture_output=True)
    finally:
        os.close(bundle)
        Path(base).rmdir()
    faults = json.loads(done.stdout)
    assert "not permitted" in faults["user"]
    assert faults["bwrap"] == "it is not installed"
    assert faults["seccomp"] == ""


@AS_ROOT
def test_an_interpreter_that_others_can_not_reach_is_refused_with_the_folder_that_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "python3").symlink_to(find_interpreter(None).path)
    assert closed_to_others(str(home / "python3")) is not None
    with pytest.raises(ConfigError, match=r"no interpreter that an unprivileged user can run .*is closed to other users"):
        find_interpreter(str(home / "python3"))
