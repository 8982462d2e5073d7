"""One rollout as a reward function sees it, read out of a batch.

Owns the gathering of inputs, once for all managers: the response's text and length, the ground truth, and the private
extra info (tool fields, number of turns, rollout rewards). Invariant: nothing in a `Sample` is shared with the batch that a
reward function could write to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reward_loop.data.columns import Column
from reward_loop.data.copying import private_copy
from reward_loop.data.decode import Decoder
from reward_loop.data.proto import DataProto
from reward_loop.data.responses import response_lengths
from reward_loop.errors import DataError

TEXT_COLUMN = "solution_str"
_CHUNK = 128


@dataclass(slots=True)
class Sample:
    """One rollout: what a reward function gets by keyword, and what a manager needs to shape its reward."""

    data_source: str | None
    solution_str: str
    ground_truth: Any
    extra_info: dict[str, Any]
    response_tokens: int | None
    """Number of valid response tokens; None where the rollout came as text."""
    tokens: Column | None = field(compare=False)
    """The valid response tokens' ids, a view of the batch: to be read, not written."""
    raw_prompt: list[dict[str, Any]] | None

    @property
    def response_ids(self) -> list[int] | None:
        """A list of the valid response tokens' ids, of the caller's own; None where the rollout came as text."""
        return None if self.tokens is None else self.tokens.tolist()


class SampleReader:
    """Reads samples out of a batch; checks on construction that it has the columns that `required` names.

    Raises DataError for a batch that lacks one, or that holds neither `responses` nor the text column `solution_str`.
    """

    def __init__(self, data: DataProto, decoder: Decoder, required: Iterable[str] = ()) -> None:
        self._decoder = decoder
        self._texts = data.column(TEXT_COLUMN)
        self._responses = _responses_of(data)
        # Where there are both, the text is judged, and the tokens say where its reward stands.
        self.lengths = response_lengths(data) if self._responses is not None else _text_lengths(self._texts)
        self._columns = {name: _listed(data.column(name)) for name in _COLUMNS}
        for argument in required:
            if (name := _COLUMN_OF.get(argument)) and self._columns[name] is None:
                raise DataError(
                    f"the reward function needs {argument}, but the batch has no column {name!r} "
                    f"(it has {sorted(data.column_names())})"
                )

    @property
    def any_empty(self) -> bool:
        """Whether any row has no response to judge."""
        return not self.lengths.all()

    def is_empty(self, row: int) -> bool:
        """Whether the row has no response to judge."""
        return not self.lengths[row]

    def check(self) -> None:
        """Raise ConfigError where token ids came and there is no tokenizer."""
        if self._texts is None:
            self._decoder.check()

    def read_all(self, rows: Sequence[int]) -> Iterator[tuple[int, Sample | Exception]]:
        """Yield each row's number and its sample, or what is wrong with it, reading some rows ahead."""
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            yield from zip(chunk, self.read(chunk), strict=True)

    def read(self, rows: Sequence[int]) -> list[Sample | Exception]:
        """Return the samples of these rows, or what is wrong with a row, decoding them together."""
        try:
            return self._read(rows)
        except Exception as error:  # noqa: BLE001 - a tokenizer may raise anything; ids that nobody can decode cost their row
            return [error] if len(rows) == 1 else [sample for row in rows for sample in self.read([row])]

    def _read(self, rows: Sequence[int]) -> list[Sample | Exception]:
        tokens: Sequence[Column | None] = [None] * len(rows)
        texts: Sequence[str] = [] if self._texts is None else [self._texts[row] for row in rows]
        if self._responses is not None:
            tokens = views = [self._responses[row, : self.lengths[row]] for row in rows]
            texts = texts or self._decoder(views)
        cells = zip(*(_cells(self._columns[name], rows) for name in _COLUMNS), strict=True)
        return [_sample(text, row_tokens, *row) for text, row_tokens, row in zip(texts, tokens, cells, strict=True)]


def _sample(
    text: str,
    tokens: Column | None,
    data_source: Any,
    reward_model: Any,
    extra_info: Any,
    tool_fields: Any,
    num_turns: Any,
    rollout_rewards: Any,
    raw_prompt: Any,
) -> Sample | Exception:
    if reward_model is not None and not isinstance(reward_model, Mapping):
        return DataError(f'reward_model must be a dict such as {{"ground_truth": …}}; it is {reward_model!r:.100}')
    if extra_info is not None and not isinstance(extra_info, dict):
        return DataError(f"extra_info must be a dict; it is {extra_info!r:.100}")
    if tool_fields is not None and not isinstance(tool_fields, Mapping):
        return DataError(f"tool_extra_fields must be a dict; it is {tool_fields!r:.100}")
    extra = private_copy(extra_info) if extra_info else {}
    if tool_fields is not None:
        extra.update(private_copy(dict(tool_fields)))
    extra["num_turns"] = num_turns
    extra["rollout_reward_scores"] = {} if rollout_rewards is None else private_copy(rollout_rewards)
    return Sample(
        data_source=data_source,
        solution_str=text,
        ground_truth=private_copy(reward_model.get("ground_truth")) if reward_model else None,
        extra_info=extra,
        response_tokens=None if tokens is None else len(tokens),
        tokens=tokens,
        raw_prompt=private_copy(raw_prompt),
    )


_COLUMNS = (
    "data_source",
    "reward_model",
    "extra_info",
    "tool_extra_fields",
    "__num_turns__",
    "reward_scores",
    "raw_prompt",
)
_COLUMN_OF = {
    "data_source": "data_source",
    "data_sources": "data_source",
    "ground_truth": "reward_model",
    "ground_truths": "reward_model",
    "raw_prompt": "raw_prompt",
}


def _listed(column: Column | None) -> list[Any] | None:
    # A list is indexed several times faster than an object array.
    return None if column is None else list(column)


def _cells(column: list[Any] | None, rows: Sequence[int]) -> Iterable[Any]:
    return [None] * len(rows) if column is None else [column[row] for row in rows]


def _responses_of(data: DataProto) -> Column | None:
    responses = data.tensor("responses")
    if responses is None and data.column(TEXT_COLUMN) is None:
        raise DataError(
            f"a batch needs the tensor 'responses' (token ids) or the column {TEXT_COLUMN!r} (text); "
            f"it has tensors {sorted(data.tensor_names())} and columns {sorted(data.column_names())}"
        )
    return None if responses is None else responses.detach().cpu().numpy()


def _text_lengths(texts: Column | None) -> Column:
    listed = [] if texts is None else list(texts)
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise DataError(f"{TEXT_COLUMN} must hold text; row {row} holds {text!r:.100}")
    return np.fromiter(map(len, listed), np.int64, len(listed))
