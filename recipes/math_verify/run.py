"""Scores labelled MATH responses, MATH-500's own solutions and contrived responses with the rule math_verify.

    python recipes/math_verify/run.py PATH/TO/math_cot_50.jsonl PATH/TO/math500.jsonl [OUTDIR]

The exit code is 0 if every reward agrees with its label and every contrived response ends as it should, else 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CONFIG = Path(__file__).with_name("config.yaml")
LABELLED, SOLUTIONS, CONTRIVED = "labelled responses", "MATH-500 solutions", "contrived responses"
OUTCOMES = ("correct", "wrong", "unparseable", "timeout")
RESPONSES = (
    (r"It is \boxed{9^{9^{9^{9}}}}.", "5", "timeout"),
    (r"It is \boxed{(99999999)!}.", "5", "timeout"),
    (r"It is \boxed{\sum_{n=1}^{10^9} \frac{\sin n}{n^n}}.", "5", "timeout"),
    (r"It is \boxed{\frac{x^{3000}-1}{x-1}}.", "x^2", "timeout"),
    ("1/2" * 60, "5", "timeout"),
    (r"It is \boxed{5 +}.", "5", "unparseable"),
    (r"It is 5, that is \boxed{5", "5", "unparseable"),
    ("No idea.", "5", "unparseable"),
)
"""What sympy works on for hours or for ever, and what is no answer: response, truth, outcome."""

Row = dict[str, Any]


def rollouts(labelled: Path, solutions: Path) -> Iterator[Row]:
    """Yield every rollout; what is expected of it goes along, for nobody but the comparison."""
    for entry in _entries(labelled):
        for number, (response, label) in enumerate(zip(entry["code"], entry["score"], strict=True)):
            expected = "correct" if label else "not correct"
            yield _row(LABELLED, f"{entry['idx']}-{number}", entry["question"], response, entry["gt"], expected)
    for number, entry in enumerate(_entries(solutions)):
        yield _row(SOLUTIONS, f"{number}", entry["problem"], entry["solution"], entry["answer"], "correct")
    for number, (response, truth, expected) in enumerate(RESPONSES):
        yield _row(CONTRIVED, f"{number}", "", response, truth, expected)


def _entries(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _row(source: str, name: str, prompt: str, response: str, truth: str, expected: str) -> Row:
    rollout = {"uid": f"{source} {name}", "data_source": source, "prompt": prompt, "response": response, "ground_truth": truth}
    return {**rollout, "expected": expected}


def outcome(row: Row) -> str:
    """Return the verdict of the rule, or the status of a sample that has none."""
    return str(row["reward_extra_info"]["verdict"] if row["reward_status"] == "ok" else row["reward_status"])


def agrees(row: Row) -> bool:
    """Whether a sample ended as expected; a response that is labelled as not correct may be wrong or unparseable."""
    if row["expected"] == "not correct":
        return outcome(row) in ("wrong", "unparseable")
    return bool(outcome(row) == row["expected"])


def compare(rows: list[Row]) -> bool:
    """Print the table, then every disagreement; return whether there is none."""
    table = Table("", "rollouts", *OUTCOMES, "other", "agree", "ended after, s")
    for source in (LABELLED, SOLUTIONS, CONTRIVED):
        some = [row for row in rows if row["data_source"] == source]
        outcomes, seconds = [outcome(row) for row in some], max(row["reward_seconds"] for row in some)
        counts = [*map(outcomes.count, OUTCOMES), sum(each not in OUTCOMES for each in outcomes), sum(map(agrees, some))]
        table.add_row(source, f"{len(some)}", *map(str, counts), f"{seconds:.1f}")
    Console(width=130).print(table)
    wrong = [row for row in rows if not agrees(row)]
    for row in wrong:
        print(
            f"DISAGREES {row['uid']}: {outcome(row)} ({row['reward_message']}), expected {row['expected']}, "
            f"truth {row['ground_truth']!r}, response ends {row['response'][-60:]!r}"
        )
    print(f"{len(rows) - len(wrong)} of {len(rows)} samples ended as expected")
    return not wrong


def run(labelled: Path, solutions: Path, out: Path) -> bool:
    """Write the rollouts to `out`, score them through the command line, compare."""
    out.mkdir(parents=True, exist_ok=True)
    given, scored = out / "rollouts.jsonl", out / "scored.jsonl"
    scored.unlink(missing_ok=True)  # so that an earlier run's is never taken for this one's
    given.write_text("".join(f"{json.dumps(row)}\n" for row in rollouts(labelled, solutions)), encoding="utf-8")
    arguments = ["score", str(given), "-o", str(scored), "--overwrite", "--config", str(CONFIG)]
    print("$ reward-loop", *arguments, flush=True)
    ended = subprocess.run([sys.executable, "-m", "reward_loop.cli.main", *arguments], check=False)
    if not scored.exists():  # a wrong command or input, which the command line has explained
        sys.exit(ended.returncode)
    return compare(list(_entries(scored)))


def main() -> None:
    """Read the arguments."""
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    labelled, solutions, *out = map(Path, sys.argv[1:])
    if missing := next((path for path in (labelled, solutions) if not path.is_file()), None):
        sys.exit(f"{missing} is no file; recipes/math_verify/README.md says where it comes from")
    if out:
        sys.exit(not run(labelled, solutions, out[0]))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not run(labelled, solutions, Path(folder)))


if __name__ == "__main__":
    main()
