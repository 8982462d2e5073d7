"""`reward-loop report`: one pass over a scored file, and one HTML page that needs nothing else.

Invariants: memory does not grow with the file (`RunStats` keeps counts, bins and the slowest few); the page holds no
script, loads nothing and bears no time of its own, so the same run gives the same page; what a user wrote is escaped.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from reward_loop.errors import DataError
from reward_loop.runs.fields import FieldMap, Row, RowError, look_up, message_text
from reward_loop.runs.report_page import page_environment
from reward_loop.runs.report_plots import LatencyRow
from reward_loop.runs.report_rubrics import RUBRIC_COLUMNS, RubricStats
from reward_loop.runs.report_values import OTHERS, Latencies, Values, finite_number, slot
from reward_loop.runs.report_weights import WeightHistory, audit_of, read_weights
from reward_loop.runs.source import RolloutSource, open_source

REWARD_COLUMNS = ("reward", "reward_status", "reward_message", "reward_seconds", "reward_extra_info")
FAILED = ("error", "timeout")
SLOWEST = 20
_EXCERPT = 600
_ROWS_PER_CHUNK = 2_000
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_SECRET = re.compile(r"(^|[._])(api_?key|secret|password|(auth|access|hf)_token)$", re.IGNORECASE)


@dataclass(slots=True)
class SourceStats:
    """The rows of one data source."""

    rows: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    rewards: Values = field(default_factory=Values)
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True)
class Reason:
    """Rows that did not end as ok for the same reason, and the first of them."""

    status: str
    exception: str
    first_row: int
    first_message: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class Slow:
    """One of the slowest samples."""

    row: int
    source: str
    seconds: float
    status: str
    prompt: str
    response: str


class RunStats:
    """What the report shows of a scored file, gathered row by row."""

    def __init__(self, fields: FieldMap) -> None:
        self.fields = fields
        self.rows = 0
        self.statuses: Counter[str] = Counter()
        self.rewards = Values()
        self.sources: dict[str, SourceStats] = {}
        self.reasons: dict[tuple[str, str], Reason] = {}
        self.components: dict[str, Values] = {}
        self.rubrics = RubricStats()
        self._slowest: list[tuple[float, int, Slow]] = []

    def add(self, number: int, row: Row) -> None:
        """Take in row `number`. Raises DataError where its reward columns do not hold what they should."""
        reward, seconds = _number(number, row, "reward"), _number(number, row, "reward_seconds") or 0.0
        status, message = _text(number, row, "reward_status"), _text(number, row, "reward_message")
        name = str(self.fields.constant_data_source or look_up(row, self.fields.data_source))
        source = slot(self.sources, name, OTHERS, SourceStats)
        self.rows += 1
        source.rows += 1
        self.statuses[status] += 1
        source.statuses[status] += 1
        source.latencies.add(seconds)
        info = _extra_info(number, row)
        self.rubrics.add(number, name, info, reward)
        if reward is not None:
            self.rewards.add(reward, reward)
            source.rewards.add(reward, reward)
            self._add_components(info, reward)
        if status != "ok":
            self._add_reason(number, status, message)
        self._add_slow(number, row, name, seconds, status)

    @property
    def failures(self) -> int:
        """Rows that ended as an error or a timeout."""
        return sum(self.statuses[status] for status in FAILED)

    @property
    def slowest(self) -> list[Slow]:
        """The slowest samples, slowest first."""
        return [slow for _, _, slow in sorted(self._slowest, reverse=True)]

    @property
    def latency_rows(self) -> list[LatencyRow]:
        """Percentiles per source, the source with the most rows first."""
        return [LatencyRow(name, one.rows, one.latencies.percentiles()) for name, one in self.by_rows()]

    def by_status(self) -> list[tuple[str, int]]:
        """Rows per status, "ok" first."""
        return sorted(self.statuses.items(), key=lambda item: (item[0] != "ok", item[0]))

    def by_rows(self) -> list[tuple[str, SourceStats]]:
        """The sources, those with the most rows first."""
        return sorted(self.sources.items(), key=lambda item: (-item[1].rows, item[0]))

    def by_count(self) -> list[Reason]:
        """The reasons, the most frequent first."""
        return sorted(self.reasons.values(), key=lambda reason: (-reason.count, reason.first_row))

    def _add_components(self, info: Mapping[str, Any], reward: float) -> None:
        for key, value in info.items():
            if key not in RUBRIC_COLUMNS and (number := finite_number(value)) is not None:
                slot(self.components, key, OTHERS, Values).add(number, reward)

    def _add_reason(self, number: int, status: str, message: str) -> None:
        match = _EXCEPTION.match(message)
        key, others = (status, match[1] if match else ""), (status, OTHERS)
        reason = slot(self.reasons, key, others, lambda: Reason(*key, number, _excerpt(message)))
        reason.count += 1

    def _add_slow(self, number: int, row: Row, source: str, seconds: float, status: str) -> None:
        if len(self._slowest) < SLOWEST or (seconds, -number) > self._slowest[0][:2]:
            shown = (_as_text(look_up(row, path)) for path in (self.fields.prompt, self.fields.response))
            entry = (seconds, -number, Slow(number, source, seconds, status, *map(_excerpt, shown)))
            (heapq.heappush if len(self._slowest) < SLOWEST else heapq.heappushpop)(self._slowest, entry)


def write_report(output: Path, html: Path, weights: Path | None = None) -> None:
    """Write the page about the scored file `output` to `html`. Raises DataError where `output` is none.

    `weights` is an audit of a live configuration, or a log of `RewardLogger("jsonl")`: how the rubrics' weights went. Without it
    they are taken from the audit that the run's configuration names, else from the rows.
    """
    if not output.exists() and output.with_name(output.name + ".partial").is_dir():
        raise DataError(f"{output}: this run has not ended; finish it with `reward-loop score INPUT -o {output} --resume`")
    summary = _summary_of(output)
    stats = _collect(output, summary)
    template = page_environment().get_template("report.html")
    config = list(_flat(cast("dict[str, Any]", summary.get("config") or {})))
    history = _weights(weights, summary) or stats.rubrics.weights
    page = template.render(name=output.name, stats=stats, summary=summary, config=config, weights=history)
    html.write_text(page, encoding="utf-8")


def _weights(given: Path | None, summary: Mapping[str, Any]) -> WeightHistory | None:
    if given is not None:
        return read_weights(given)
    audit = audit_of(summary)
    return read_weights(audit) if audit is not None and audit.exists() else None


def _collect(output: Path, summary: Mapping[str, Any]) -> RunStats:
    source = open_source(output)
    if missing := [name for name in REWARD_COLUMNS if name not in source.names()]:
        raise DataError(
            f"{output} is no scored file, it lacks {', '.join(missing)}; "
            f"make one with `reward-loop score {output} -o scored.parquet`, then `reward-loop report scored.parquet`"
        )
    stats = RunStats(_fields_of(source, summary))
    used = (*stats.fields.columns(source.names()), *REWARD_COLUMNS)
    for chunk in open_source(output, columns=used).chunks(_ROWS_PER_CHUNK):
        for number, row in enumerate(chunk.rows, chunk.first_row):
            if isinstance(row, RowError):
                raise DataError(f"{row.error.message}; the scored file is damaged, score it again") from row.error
            stats.add(number, row)
    return stats


def _fields_of(source: RolloutSource, summary: Mapping[str, Any]) -> FieldMap:
    if summary.get("fields"):
        return FieldMap.from_dict(summary["fields"])
    return FieldMap.detect(source.names(), source.head())


def _summary_of(output: Path) -> dict[str, Any]:
    path = output.with_name(output.name + ".summary.json")
    if not path.exists():
        return {}
    try:
        summary = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); remove it to report without it") from error
    if not isinstance(summary, dict):
        raise DataError(f"{path} holds no object; remove it to report without it")
    return cast("dict[str, Any]", summary)


def _extra_info(row_number: int, row: Row) -> dict[str, Any]:
    info = row.get("reward_extra_info")
    try:
        info = json.loads(info) if isinstance(info, str) else info
    except ValueError as error:
        raise DataError(f"row {row_number}: reward_extra_info is not valid JSON ({error}); score the file again") from error
    return cast("dict[str, Any]", info or {})


def _number(number: int, row: Row, name: str) -> float | None:
    value = row.get(name)
    finite = finite_number(value)
    if finite is None and value is not None:
        raise DataError(f"row {number}: {name} is {value!r}, not a finite number; score the file again")
    return finite


def _text(number: int, row: Row, name: str) -> str:
    value = row.get(name)
    if isinstance(value, str):
        return value
    raise DataError(f"row {number}: {name} is {value!r}, not text; score the file again")


def _as_text(value: Any) -> str:
    """A prompt or response as a person reads it: the last message of a chat, the number of tokens of ids."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return message_text(cast("dict[str, Any]", value[-1]).get("content"))
    if isinstance(value, list):
        return f"{len(value)} token ids: {', '.join(map(str, value[:40]))}{', …' if len(value) > 40 else ''}"
    return str(value)


def _excerpt(text: str) -> str:
    """The beginning and the end: the end of a response holds its answer."""
    half = _EXCERPT // 2
    return text if len(text) <= _EXCERPT else f"{text[:half]} … {text[-half:]}"


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, value as JSON), as overrides are written; what looks like a credential is masked."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _flat(cast("dict[str, Any]", value), f"{path}.")
        else:
            masked = value is not None and _SECRET.search(path)
            yield path, "••••" if masked else json.dumps(value, ensure_ascii=False)
