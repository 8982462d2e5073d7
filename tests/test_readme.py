"""What README.md and docs/ show is run: snippets, configurations, commands; and what they name exists."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from recipes import tiny_models
from reward_loop import RewardLoopConfig, get_reward_manager_cls, load_config
from reward_loop.config_section import load_section
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.runs.fields import CONVENTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_RECIPES = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("recipes/*/README.md"))]

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+\.(?:py|yaml))\n")
PROMISE = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)

ROLLOUTS = [
    {"data_source": "openai/gsm8k", "response": "#### 42", "ground_truth": "42", "answer": {"value": "42"}},
    {"data_source": "my_company/units", "response": "It is 5 km", "ground_truth": "It is 5 km", "answer": {"value": "5"}},
]
RUN_COMMANDS = """
import json, os, shlex, sys
from reward_loop.cli.main import main
for folder, command in map(json.loads, sys.stdin):
    os.chdir(folder)
    sys.argv = shlex.split(command, comments=True)
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"exit code {end.code} of {command} in {folder}")
"""


def blocks(document: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(document.read_text("utf-8")) if found == language]


def documents_with(language: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d, language)], ids=lambda path: path.name)


def commands(document: Path, program: str) -> list[str]:
    return [line for block in blocks(document, "sh") for line in block.splitlines() if line.startswith(f"{program} ")]


def files(document: Path) -> Iterator[tuple[str, str]]:
    """The blocks whose first line names the file that they are."""
    for block in blocks(document, "python") + blocks(document, "yaml"):
        if named := FILE_NAME.match(block):
            yield named[1], block


def folder_of(document: Path, folder: Path) -> Path:
    """A folder with what the reader of a document has by now: its files, some rollouts, and the presets."""
    for name, body in files(document):
        (folder / name).write_text(body, encoding="utf-8")
    (folder / "rollouts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROLLOUTS), encoding="utf-8")
    (folder / "configs").symlink_to(ROOT / "configs")
    return folder


def run_python(folder: Path, *arguments: str, given: str = "") -> str:
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@documents_with("python")
def test_every_python_snippet_runs_and_prints_what_it_says(document: Path, tmp_path: Path) -> None:
    script = "\n".join(block for block in blocks(document, "python") if not FILE_NAME.match(block))
    folder = folder_of(document, tmp_path)
    (folder / "snippets.py").write_text(script, encoding="utf-8")
    assert run_python(folder, "snippets.py").splitlines() == PROMISE.findall(script)


@documents_with("yaml")
def test_every_yaml_snippet_is_a_valid_configuration(document: Path) -> None:
    for block in blocks(document, "yaml"):
        given = yaml.safe_load(block)
        if block.startswith("# rl.yaml"):
            assert load_config(load_section(RLConfig, given).rewards.reward_loop or {}) != RewardLoopConfig()
        else:
            assert load_config(given) != RewardLoopConfig(), f"{block} changes nothing"


def test_every_command_runs_and_does_what_the_readme_says(tmp_path: Path) -> None:
    given: list[str] = []
    for document in DOCUMENTS:
        folder = tmp_path / document.stem
        folder.mkdir()
        folder_of(document, folder)
        given += [json.dumps([str(folder), command]) for command in commands(document, "reward-loop")]
    assert len(given) > 10
    run_python(tmp_path, "-c", RUN_COMMANDS, given="\n".join(given))  # one process: most of its time goes into imports
    [by_rule] = tmp_path.glob("*/by_rule.jsonl")  # the README's, scored by the rule that it registers
    rows = [json.loads(line) for line in by_rule.read_text("utf-8").splitlines()]
    assert [(row["data_source"], row["reward"]) for row in rows] == [("openai/gsm8k", 1.0), ("my_company/units", 1.0)]


@pytest.mark.vllm
def test_the_client_of_the_documentation_gets_scores(tmp_path: Path) -> None:
    folder = folder_of(ROOT / "docs" / "reward_models.md", tmp_path)
    served = yaml.safe_load((folder / "served.yaml").read_text("utf-8"))["reward_model"]
    served["model"]["path"] = str(tiny_models.reward_model(folder / "model"))
    served |= {"replicas": 1, "rollout": {"max_model_len": 256}, "server": {"device": "cpu", "cpu_kv_cache_mb": 64}}
    (folder / "served.yaml").write_text(yaml.safe_dump({"reward_model": served}), encoding="utf-8")
    right, wrong = json.loads(run_python(folder, "-W", "error::ResourceWarning", "my_client.py"))
    assert right != wrong


def scored(config: object) -> str:
    """A program that prints the rewards of a short and a long response."""
    return f"""
from reward_loop import DataProto, RewardLoopManager
data = DataProto.from_dict(non_tensors={{
    "solution_str": ["#### 42", "so " * 1000 + "#### 42"],
    "data_source": ["openai/gsm8k"] * 2,
    "reward_model": [{{"ground_truth": "42"}}] * 2,
}})
with RewardLoopManager({config!r}) as manager:
    print(manager.compute_rm_score(data).batch["rm_scores"].squeeze(-1).tolist())
"""


def manager_config() -> dict[str, Any]:
    configs = (yaml.safe_load(block) for block in blocks(ROOT / "README.md", "yaml"))
    return next(config for config in configs if "my_manager.py" in str(config))


def test_the_manager_of_the_readme_runs_from_its_file(tmp_path: Path) -> None:
    folder = folder_of(ROOT / "README.md", tmp_path)
    assert run_python(folder, "-c", scored(manager_config())) == "[1.0, 0.5]\n"


def test_the_manager_of_the_readme_runs_as_a_plugin(tmp_path: Path) -> None:
    folder = folder_of(ROOT / "README.md", tmp_path)
    declared = configparser.ConfigParser()
    declared.read_string(blocks(ROOT / "README.md", "ini")[0])
    installed = folder / "my_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n", encoding="utf-8")
    for group, entries in declared["options.entry_points"].items():
        (installed / "entry_points.txt").write_text(f"[{group}]{entries}\n", encoding="utf-8")
    config = manager_config()
    config["reward_model"]["reward_manager"] = "half_for_long"
    assert run_python(folder, "-c", scored(config)) == "[1.0, 0.5]\n"


def test_the_readme_shows_a_rule_at_work() -> None:
    assert any("by_rule.jsonl" in line and "my_rules.py" in line for line in commands(ROOT / "README.md", "reward-loop"))


def test_every_extra_to_install_exists() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = {extra for line in commands(ROOT / "README.md", "pip") for extra in re.findall(r"\.\[(\w+)\]", line)}
    assert named
    assert named <= set(setup["options.extras_require"])


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target
        for document in WITH_RECIPES
        for target in re.findall(r"(?:^    |`)make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test", "check", "bench"} <= named
    assert named <= targets


@pytest.mark.parametrize("document", WITH_RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_every_script_leads_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    scripts = re.findall(r"\b(?:recipes|benchmarks)/[\w/]+\.(?:py|sh|yaml)", text)
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [script for script in scripts if not (ROOT / script).is_file()]
    assert missing == []


def table_rows(document: str, heading: str) -> list[list[str]]:
    """The cells of each row of the table whose first heading is `heading`."""
    table = (ROOT / document).read_text("utf-8").split(f"| {heading} |", 1)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_table_of_settings_shows_the_defaults() -> None:
    for key, default, _ in table_rows("docs/configuration.md", "key"):
        value: Any = reduce(lambda node, name: node[name], key.strip("`").split("."), RewardLoopConfig())
        assert yaml.safe_load(default) == (value.name if key == "`reward_model.reward_manager`" else value), key


def test_the_table_of_fields_shows_the_names_that_are_looked_for() -> None:
    shown = {row[2].split("`")[1]: tuple(re.findall(r"`([\w.]+)`", row[1])) for row in table_rows("docs/command_line.md", "what")}
    assert shown == {f"--{role.replace('_', '-')}-field": names for role, names in CONVENTIONS.items()}


def test_the_table_of_managers_shows_managers_and_their_settings() -> None:
    for name, _, settings in table_rows("docs/reward_managers.md", "name"):
        model: Any = vars(get_reward_manager_cls(name.strip("`"))).get("kwargs_model")
        shown = {setting.split(".")[0] for setting in re.findall(r"`([\w.{}, ]+)`", settings)}
        assert model is None or shown == set(model.model_fields), name
