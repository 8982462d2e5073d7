"""Problems from a file: each row asks one question, to which there is one answer."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reward_loop.errors import DataError
from reward_loop.rinker.loops.json_rows import read_rows
from reward_loop.rinker.rendering import Renderer
from reward_loop.rinker.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from reward_loop.rinker.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

if TYPE_CHECKING:
    from reward_loop.rinker.rl.config import RLConfig


class RowEnv(ProblemEnv):
    """One row. Right is an answer that is the reference but for white space; the reward loop may judge otherwise."""

    def __init__(self, row: Mapping[str, Any], question: str, answer: str, renderer: Renderer) -> None:
        super().__init__(renderer)
        self._row, self._question, self._answer = row, question, answer

    def get_question(self) -> str:
        """See `ProblemEnv`."""
        return self._question

    def check_answer(self, sample_str: str) -> bool:
        """See `ProblemEnv`."""
        return sample_str.split() == self._answer.split()

    def check_format(self, sample_str: str) -> bool:
        """See `ProblemEnv`: any text will do."""
        return True

    def get_reference_answer(self) -> str:
        """See `ProblemEnv`."""
        return self._answer

    def reward_columns(self) -> Mapping[str, Any]:
        """See `Env`: the row's data_source and extra_info go along."""
        own = {key: self._row[key] for key in ("data_source", "extra_info") if key in self._row}
        return {**super().reward_columns(), **own}


class ProblemsDataset(RLDataset):
    """Rows in batches of groups, in an order that depends on the seed alone. The last batch may be smaller."""

    def __init__(self, builders: Sequence[EnvGroupBuilder], batch_size: int, seed: int | None) -> None:
        self._builders, self._batch_size = list(builders), batch_size
        if seed is not None:
            random.Random(seed).shuffle(self._builders)  # noqa: S311 - an order, no secret

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """See `RLDataset`."""
        return self._builders[index * self._batch_size : (index + 1) * self._batch_size]

    def __len__(self) -> int:
        return (len(self._builders) + self._batch_size - 1) // self._batch_size


class ProblemsBuilder(RLDatasetBuilder):
    """Of the files `data.problems` and `data.test_problems`."""

    def __init__(self, config: RLConfig, renderer: Renderer) -> None:
        self._config, self._renderer = config, renderer

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """See `RLDatasetBuilder`. DataError names the row that has no question or answer."""
        config = self._config
        train = self._dataset(str(config.data.problems), config.group_size, config.seed)
        if config.data.test_problems is None:
            return train, None
        return train, self._dataset(config.data.test_problems, config.evaluation.samples, None)

    def _dataset(self, path: str, samples: int, seed: int | None) -> ProblemsDataset:
        builders = [self._builder(path, number, row, samples) for number, row in enumerate(read_rows(path), 1)]
        return ProblemsDataset(builders, self._config.batch_size, seed)

    def _builder(self, path: str, number: int, row: Mapping[str, Any], samples: int) -> EnvGroupBuilder:
        data = self._config.data
        question, answer = row.get(data.question_field), row.get(data.answer_field)
        if not isinstance(question, str) or isinstance(answer, dict | list | None):
            raise DataError(
                f"{path}, row {number}: needs the text {data.question_field!r} and {data.answer_field!r}; it has {list(row)}"
            )
        name = str(row.get("data_source", "problems"))
        return ProblemGroupBuilder(lambda: RowEnv(row, question, str(answer), self._renderer), samples, name)
