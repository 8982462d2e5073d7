"""Scores HumanEval's own solutions, and wrong and hostile programs, in the code sandbox.

    python recipes/code_humaneval/run.py [PATH/TO/HumanEval.jsonl.gz] [sandbox.level=1 …]

The exit code is 0 if every program gets the verdict that it should, else 1.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from reward_loop import DataProto, RewardLoopConfig, RewardLoopManager, load_config
from reward_loop.errors import ConfigError
from reward_loop.sandbox.probe import choose_level, probe

HERE = Path(__file__).resolve().parent
PROBLEMS = HERE.parents[1] / ".." / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
SETTINGS = {"sandbox": {"timeout_s": 5.0}, "reward_model": {"on_error": "mask"}}
PASSED = frozenset({"passed"})

Problem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A response to a problem, and the verdicts that it may get."""

    kind: str
    problem: Problem
    response: str
    verdicts: frozenset[str]


def rollouts(problems: list[Problem]) -> list[Rollout]:
    """Return every problem's own solution in two forms and two wrong ones, and each attack on one of the problems."""
    made: list[Rollout] = []
    for problem in problems:
        prompt, body = problem["prompt"], problem["canonical_solution"]
        unanswered = f"```python\n{prompt}    return None\n```"
        made += [
            Rollout("canonical", problem, f"This should do:\n```python\n{prompt}{body}```\n", PASSED),
            Rollout("canonical, completion only", problem, body, PASSED),
            Rollout("wrong: returns None", problem, unanswered, frozenset({"failed"})),
            Rollout("wrong: no code", problem, "I would count the elements.", frozenset({"no_code"})),
        ]
    attacks = yaml.safe_load((HERE / "hostile.yaml").read_text(encoding="utf-8"))
    for number, (name, attack) in enumerate(attacks.items()):
        problem = problems[number % len(problems)]
        function = f"def {problem['entry_point']}(*arguments):\n    return attack(*arguments)"
        response = f"```python\n{attack['program']}\n{function}\n```"
        made.append(Rollout(f"hostile: {name}", problem, response, frozenset(attack["verdicts"])))
    return made


def batch_of(rollouts: list[Rollout]) -> DataProto:
    """Return rollouts as the batch that a trainer would hand over."""
    columns: dict[str, list[Any]] = {
        "solution_str": [rollout.response for rollout in rollouts],
        "data_source": ["openai_humaneval"] * len(rollouts),
        "reward_model": [{"ground_truth": rollout.problem} for rollout in rollouts],
    }
    return DataProto.from_dict(non_tensors=columns)


def score(manager: RewardLoopManager, rollouts: list[Rollout], table: Table) -> list[str]:
    """Score rollouts of one kind, add their line to the table, and return a line for each wrong verdict."""
    started = time.perf_counter()
    columns = manager.compute_rm_score(batch_of(rollouts)).non_tensor_batch
    seconds = (time.perf_counter() - started) / len(rollouts)
    wrong: list[str] = []
    got: Counter[str] = Counter()
    for row, rollout in enumerate(rollouts):
        verdict = columns["verdict"][row] if columns["reward_status"][row] == "ok" else columns["reward_status"][row]
        got[verdict] += 1
        if verdict not in rollout.verdicts or (columns["score"][row] == 1.0) != (verdict == "passed"):
            message = columns["message"][row] or columns["reward_message"][row]
            wrong.append(f"{rollout.problem['task_id']} {rollout.kind}: {verdict} ({message}), not {'/'.join(rollout.verdicts)}")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(got.items()))
    table.add_row(rollouts[0].kind, str(len(rollouts)), verdicts, str(len(rollouts) - len(wrong)), f"{seconds:.3f}")
    return wrong


def run(config: RewardLoopConfig, problems: list[Problem]) -> bool:
    """Score everything, print the table and whatever is not as it should be; return whether there is nothing such."""
    table = Table("rollouts", *("number", "verdicts", "as expected", "s per program"), title=where(config))
    made = rollouts(problems)
    wrong: list[str] = []
    with RewardLoopManager(config) as manager:
        for kind in dict.fromkeys(rollout.kind for rollout in made):
            wrong += score(manager, [rollout for rollout in made if rollout.kind == kind], table)
    console = Console(width=120, highlight=False, markup=False)
    console.print(table)
    for line in wrong:
        console.print(f"NOT AS EXPECTED {line}", soft_wrap=True)
    console.print(f"{len(made) - len(wrong)} of {len(made)} verdicts are as expected")
    return not wrong


def where(config: RewardLoopConfig) -> str:
    """Say where the programs run."""
    if config.sandbox_fusion.url:
        return f"service at {config.sandbox_fusion.url}"
    found = probe(config.sandbox)
    return found.describe(choose_level(config.sandbox, found))


def main() -> None:
    """Read the arguments."""
    overrides = [argument for argument in sys.argv[1:] if "=" in argument]
    paths = [Path(argument) for argument in sys.argv[1:] if "=" not in argument] or [PROBLEMS]
    if len(paths) > 1:
        sys.exit(__doc__)
    if not paths[0].is_file():
        sys.exit(f"{paths[0]} is no file; it comes from https://github.com/openai/human-eval")
    with gzip.open(paths[0], "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    try:
        sys.exit(not run(load_config(SETTINGS, overrides=overrides), problems))
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
