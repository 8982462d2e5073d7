"""GSM8K as environments: a question with an instruction, and the reference answer that the reward loop's rule compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from reward_loop.errors import DataError
from reward_loop.functions.gsm8k import compute_score
from reward_loop.rinker.loops.json_rows import read_rows
from reward_loop.rinker.rendering import Renderer
from reward_loop.rinker.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from reward_loop.rinker.rl.problems import ProblemsDataset
from reward_loop.rinker.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

INSTRUCTION = ' Let\'s think step by step, and write the final number behind "####".'
DATA_SOURCE = "openai/gsm8k"
"""By this name the reward loop knows which rule is meant."""


class GSM8KEnv(ProblemEnv):
    """One problem. The environment judges by the same rule as the reward loop, for `env/all/correct` and evaluations."""

    def __init__(self, renderer: Renderer, question: str, number: str) -> None:
        super().__init__(renderer)
        self._question, self._number = question, number

    def get_question(self) -> str:
        return self._question + INSTRUCTION

    def check_answer(self, sample_str: str) -> bool:
        return compute_score(sample_str, self._number) == 1.0

    def check_format(self, sample_str: str) -> bool:
        return "####" in sample_str

    def get_reference_answer(self) -> str:
        return self._number

    def reward_columns(self) -> Mapping[str, Any]:
        return {**super().reward_columns(), "data_source": DATA_SOURCE}


@dataclass(frozen=True, slots=True)
class GSM8K(RLDatasetBuilder):
    """Problems of openai/grade-school-math's files, to train on and to evaluate on."""

    renderer: Renderer
    path: str
    test_path: str | None
    batch_size: int
    group_size: int
    seed: int
    test_problems: int

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        train = ProblemsDataset(self._groups(self.path, self.group_size), self.batch_size, self.seed)
        if self.test_path is None:
            return train, None
        groups = self._groups(self.test_path, 1)[: self.test_problems]
        return train, ProblemsDataset(groups, self.batch_size, None)

    def _groups(self, path: str, size: int) -> list[EnvGroupBuilder]:
        return [self._group(path, place, row, size) for place, row in enumerate(read_rows(path), 1)]

    def _group(self, path: str, place: int, row: Mapping[str, Any], size: int) -> EnvGroupBuilder:
        question, number = row.get("question"), str(row.get("answer", "")).rpartition("####")[2].strip()
        if not isinstance(question, str) or not number:
            raise DataError(f"{path}, row {place}: no GSM8K problem: it needs a question, and an answer that ends with #### n")
        return ProblemGroupBuilder(partial(GSM8KEnv, self.renderer, question, number), size, "gsm8k")


def dataset_builder(
    renderer: Renderer,
    path: str,
    batch_size: int,
    group_size: int,
    seed: int,
    test_path: str | None = None,
    test_problems: int = 256,
) -> RLDatasetBuilder:
    """Return the builder; the paths and `test_problems`, of which there are at most so many, are set by `data.kwargs`."""
    return GSM8K(renderer, path, test_path, batch_size, group_size, seed, test_problems)
