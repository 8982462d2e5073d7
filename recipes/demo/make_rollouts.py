"""Makes the demo's rollouts: math problems answered by three simulated policies. Same seed, same file.

    python recipes/demo/make_rollouts.py OUT.jsonl [SEED]

A policy does each step of the arithmetic and slips now and then; it may also forget the form that the prompt asks for, ramble
until it is cut off, or say nothing. Two problems have an unusable ground truth, as real data sets do.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

PROBLEMS_PER_SOURCE = 210
SAMPLES = 4
GSM8K, MATH = "openai/gsm8k", "lighteval/MATH"
ASK = {GSM8K: "End with '#### ' and the number.", MATH: "Put the answer in \\boxed{}."}

STORIES = (
    ("A baker fills {} trays with {} rolls each, sells {} rolls and bakes {} more. How many rolls are there now?", "*-+"),
    ("Mara saves {} euros a week for {} weeks, gets {} euros from her aunt and spends {}. How much is left?", "*+-"),
    ("A theatre has {} rows of {} seats. {} seats are broken. How many people can sit down?", "*-"),
    ("A train leaves with {} passengers; {} get on, {} get off, and then {} get on. How many are on board?", "+-+"),
    ("A farmer owns {} hens and buys {} more. How many hens are there?", "+"),
)
WORDS = {"*": "That makes", "+": "Adding the next number:", "-": "Taking away what is gone:"}


@dataclass(frozen=True, slots=True)
class Policy:
    """A simulated policy: how often it does what, as probabilities."""

    name: str
    slips: float
    """Per step of arithmetic."""
    forgets_form: float
    rambles: float
    says_nothing: float


POLICIES = (
    Policy("large", slips=0.03, forgets_form=0.01, rambles=0.03, says_nothing=0.002),
    Policy("medium", slips=0.10, forgets_form=0.06, rambles=0.08, says_nothing=0.008),
    Policy("small", slips=0.24, forgets_form=0.18, rambles=0.15, says_nothing=0.025),
)


@dataclass(frozen=True, slots=True)
class Story:
    """A word problem: the numbers are combined from left to right."""

    question: str
    numbers: tuple[int, ...]
    operators: str

    def solve(self, rng: random.Random, slips: float) -> tuple[list[str], str]:
        """Return the sentences of a solution and its answer; each step goes wrong with probability `slips`."""
        value, sentences = self.numbers[0], []
        for operator, number in zip(self.operators, self.numbers[1:], strict=True):
            after = {"*": value * number, "+": value + number, "-": value - number}[operator]
            after += rng.choice((-10, -1, 1, 2, 10)) if rng.random() < slips else 0
            sentences.append(f"{WORDS[operator]} {value} {operator} {number} = {after}.")
            value = after
        return sentences, f"{value:,}" if rng.random() < 0.5 else str(value)


@dataclass(frozen=True, slots=True)
class Sum:
    """Two fractions to add."""

    one: Fraction
    other: Fraction

    @property
    def question(self) -> str:
        return f"What is ${_latex(self.one)} + {_latex(self.other)}$ in lowest terms?"

    def solve(self, rng: random.Random, slips: float) -> tuple[list[str], str]:
        """Return the sentences of a solution and its answer, in one of the spellings that the rule takes as equal."""
        common = self.one.denominator * self.other.denominator
        total = self.one + self.other
        if rng.random() < 2 * slips:
            total += Fraction(rng.choice((-1, 1)), common)
        sentences = [f"With the common denominator {common} this is ${_latex(total)}$."]
        spellings = (_latex(total), _latex(total).replace("frac", "dfrac"), str(total))
        return sentences, rng.choice(spellings)


def _latex(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"\\frac{{{number.numerator}}}{{{number.denominator}}}"


def _problem(rng: random.Random, source: str) -> Story | Sum:
    if source == MATH:
        return Sum(Fraction(rng.randint(1, 9), rng.randint(2, 12)), Fraction(rng.randint(1, 9), rng.randint(2, 12)))
    text, operators = rng.choice(STORIES)
    big = 30 if operators[0] == "*" else 900
    numbers = (rng.randint(big, 4 * big), rng.randint(9, 60), *(rng.randint(5, 99) for _ in operators[1:]))
    return Story(text.format(*numbers), numbers, operators)


def _response(rng: random.Random, policy: Policy, source: str, problem: Story | Sum) -> str:
    if rng.random() < policy.says_nothing:
        return ""
    sentences, answer = problem.solve(rng, policy.slips)
    if rng.random() < policy.rambles:
        sentences += ["Wait, let me go through that once more."] * rng.randint(8, 40)
        if len(sentences) > 30:
            return " ".join(sentences)  # cut off by the length limit
    if rng.random() < policy.forgets_form:
        return " ".join([*sentences, f"So the answer is {answer}"])
    form = f"\n#### {answer}" if source == GSM8K else f"The answer is $\\boxed{{{answer}}}$."
    return " ".join([*sentences, form])


def rollouts(seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield `SAMPLES` rollouts per problem and policy, those of one group (`uid`) one after the other."""
    rng = random.Random(seed)
    for number in range(2 * PROBLEMS_PER_SOURCE):
        source = (GSM8K, MATH)[number % 2]
        problem = _problem(rng, source)
        truth = problem.solve(rng, slips=0.0)[1] if number not in (20, 300) else "see the attached sheet"
        for policy in POLICIES:
            for sample in range(SAMPLES):
                yield {
                    "uid": f"{policy.name}-{number}",
                    "data_source": source,
                    "prompt": f"{problem.question} {ASK[source]}",
                    "response": _response(rng, policy, source, problem),
                    "ground_truth": truth,
                    "extra_info": {"policy": policy.name, "sample": sample},
                }


def main() -> None:
    """Write the rollouts as JSONL."""
    out, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    lines = [json.dumps(rollout, ensure_ascii=False) for rollout in rollouts(seed)]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} rollouts -> {out}")


if __name__ == "__main__":
    main()
