"""Scores the labelled GSM8K rollouts and compares with the published labels.

    python recipes/gsm8k/run.py PATH/TO/example_model_solutions.jsonl [OUTDIR]

The exit code is 0 if every reward agrees with its label, else 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
CONFIG = Path(__file__).with_name("config.yaml")

Row = dict[str, Any]


def rollouts(solutions: Path) -> Iterator[Row]:
    """Yield one rollout per question and model; its label goes along, for nobody but the comparison."""
    with solutions.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            entry = json.loads(line)
            for model in MODELS:
                yield {
                    "uid": f"{model}-{number}",
                    "model": model,
                    "data_source": "openai/gsm8k",
                    "prompt": entry["question"],
                    "response": entry[model]["solution"],
                    "ground_truth": entry["ground_truth"].rpartition("A: ")[2],
                    "is_correct": entry[model]["is_correct"],
                }


def agrees(row: Row) -> bool:
    """Whether the reward says what the label says; a sample without a reward never agrees."""
    return row["reward"] is not None and (row["reward"] == 1.0) == row["is_correct"]


def compare(rows: list[Row]) -> bool:
    """Print the agreement per model and in all, then every disagreement; return whether there is none."""
    print(f"\n{'model':<20}{'rollouts':>10}{'correct':>10}{'agree':>10}")
    for name in (*MODELS, "all"):
        some = [row for row in rows if name in (row["model"], "all")]
        print(f"{name:<20}{len(some):>10,}{sum(row['is_correct'] for row in some):>10,}{sum(map(agrees, some)):>10,}")
    wrong = [row for row in rows if not agrees(row)]
    for row in wrong:
        print(
            f"DISAGREES {row['uid']}: reward {row['reward']} ({row['reward_status']} {row['reward_message']}), "
            f"label {row['is_correct']}, truth {row['ground_truth']!r}, response ends {row['response'][-60:]!r}"
        )
    print(f"\n{len(rows) - len(wrong):,} of {len(rows):,} rewards agree with the published labels")
    return bool(rows) and not wrong


def run(solutions: Path, out: Path) -> bool:
    """Write the rollouts to `out`, score them through the command line, compare."""
    out.mkdir(parents=True, exist_ok=True)
    given, scored = out / "rollouts.jsonl", out / "scored.jsonl"
    scored.unlink(missing_ok=True)  # so that an earlier run's is never taken for this one's
    given.write_text("".join(f"{json.dumps(row)}\n" for row in rollouts(solutions)), encoding="utf-8")
    arguments = ["score", str(given), "-o", str(scored), "--overwrite", "--config", str(CONFIG)]
    print("$ reward-loop", *arguments, flush=True)
    ended = subprocess.run([sys.executable, "-m", "reward_loop.cli.main", *arguments], check=False)
    if not scored.exists():  # a wrong command or input, which the command line has explained
        sys.exit(ended.returncode)
    with scored.open(encoding="utf-8") as lines:
        return compare([json.loads(line) for line in lines])


def main() -> None:
    """Read the arguments."""
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    if not Path(sys.argv[1]).is_file():
        sys.exit(f"{sys.argv[1]} is no file; it comes from https://github.com/openai/grade-school-math")
    if len(sys.argv) == 3:
        sys.exit(not run(Path(sys.argv[1]), Path(sys.argv[2])))
    with tempfile.TemporaryDirectory() as out:
        sys.exit(not run(Path(sys.argv[1]), Path(out)))


if __name__ == "__main__":
    main()
