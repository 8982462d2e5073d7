"""`reward-loop report`: one pass over a scored file, and one HTML page that needs nothing else.

Invariants: memory does not grow with the file (`RunStats` keeps counts, bins and the slowest few); the page holds no
script, loads nothing and bears no time of its own, so the same run gives the same page; what a user wrote is escaped.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reward_loop.errors import DataError
from reward_loop.runs import report_plots
from reward_loop.runs.fields import FieldMap, Row, RowError, look_up, message_text
from reward_loop.runs.report_plots import Bar, LatencyRow
from reward_loop.runs.source import RolloutSource, open_source

REWARD_COLUMNS = ("reward", "reward_status", "reward_message", "reward_seconds", "reward_extra_info")
FAILED = ("error", "timeout")
SLOWEST = 20
OTHERS = "(others)"
_MOST_NAMES = 40
"""Sources, reasons and components beyond these many are counted together: their number must not grow with the file."""
_EXACT_VALUES = 12
_MOST_BINS = 48
_EXACT_SECONDS = 2_000
_SECONDS_RATIO = 1.02
_EXCERPT = 600
_ROWS_PER_CHUNK = 2_000
_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_SECRET = re.compile(r"(^|[._])(api_?key|secret|password|(auth|access|hf)_token)$", re.IGNORECASE)

T = TypeVar("T")


class Distribution:
    """How often each value occurs: exact for a few distinct values, then in at most 48 bins a power of two wide."""

    def __init__(self) -> None:
        self.width = 0.0
        self._counts: dict[float, int] = {}
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Count one finite value."""
        self._low, self._high = min(self._low, value), max(self._high, value)
        if self.width:
            self._widen()
        self._count(value, 1)
        if not self.width and len(self._counts) > _EXACT_VALUES:
            exact, self._counts = self._counts, {}
            span = max(self._high / _MOST_BINS - self._low / _MOST_BINS, 1e-300)
            self.width = 2.0 ** math.ceil(math.log2(span))
            for known, count in exact.items():
                self._count(known, count)

    def bars(self) -> list[Bar]:
        """Ascending; bins in between that hold nothing are there too."""
        if not self.width:
            return [Bar(value, value, count) for value, count in sorted(self._counts.items())]
        bins = range(int(min(self._counts)), int(max(self._counts)) + 1)
        return [Bar(bin_ * self.width, (bin_ + 1) * self.width, self._counts.get(bin_, 0)) for bin_ in bins]

    def _count(self, value: float, count: int) -> None:
        key = math.floor(value / self.width) if self.width else value
        self._counts[key] = self._counts.get(key, 0) + count

    def _widen(self) -> None:
        while self._high / self.width - self._low / self.width > _MOST_BINS:
            self.width *= 2
            halved: dict[float, int] = {}
            for key, count in self._counts.items():
                halved[key // 2] = halved.get(key // 2, 0) + count
            self._counts = halved


class Latencies:
    """Percentiles of seconds: exact up to 2,000 samples, then within 1 % (logarithmic bins); the maximum is exact."""

    def __init__(self) -> None:
        self.samples = 0
        self.longest = 0.0
        self._exact: list[float] = []
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one sample."""
        seconds = max(seconds, 1e-9)
        self.samples += 1
        self.longest = max(self.longest, seconds)
        self._exact.append(seconds)
        if len(self._exact) > _EXACT_SECONDS or self._bins:
            self._bins.update(round(math.log(value, _SECONDS_RATIO)) for value in self._exact)
            self._exact.clear()

    def percentiles(self) -> tuple[tuple[str, float], ...]:
        """(name, seconds) from the median to the maximum; there must be a sample."""
        return tuple((name, self._quantile(share)) for name, share in _PERCENTILES)

    def _quantile(self, share: float) -> float:
        rank = max(1, math.ceil(share * self.samples))
        if not self._bins:
            return sorted(self._exact)[rank - 1]
        seen = 0
        for bin_, count in sorted(self._bins.items()):
            seen += count
            if seen >= rank and rank < self.samples:
                return min(_SECONDS_RATIO**bin_, self.longest)
        return self.longest


@dataclass(slots=True)
class Values:
    """Mean, spread and distribution of numbers, and their correlation with the reward of the same row."""

    count: int = 0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    distribution: Distribution = field(default_factory=Distribution)
    _squares: float = 0.0
    _reward_mean: float = 0.0
    _reward_squares: float = 0.0
    _products: float = 0.0

    def add(self, value: float, reward: float) -> None:
        """Count one pair (Welford's update, which stays exact where sums of squares do not)."""
        self.count += 1
        before, reward_before = value - self.mean, reward - self._reward_mean
        self.mean += before / self.count
        self._reward_mean += reward_before / self.count
        self._squares += before * (value - self.mean)
        self._reward_squares += reward_before * (reward - self._reward_mean)
        self._products += before * (reward - self._reward_mean)
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.distribution.add(value)

    @property
    def std(self) -> float:
        """The standard deviation of all values seen."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0

    @property
    def correlation(self) -> float | None:
        """Pearson's, with the reward; None where one of the two is constant."""
        spread = math.sqrt(self._squares) * math.sqrt(self._reward_squares)
        return self._products / spread if spread else None


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
        self._slowest: list[tuple[float, int, Slow]] = []

    def add(self, number: int, row: Row) -> None:
        """Take in row `number`. Raises DataError where its reward columns do not hold what they should."""
        reward, seconds = _number(number, row, "reward"), _number(number, row, "reward_seconds") or 0.0
        status, message = _text(number, row, "reward_status"), _text(number, row, "reward_message")
        name = str(self.fields.constant_data_source or look_up(row, self.fields.data_source))
        source = _slot(self.sources, name, OTHERS, SourceStats)
        self.rows += 1
        source.rows += 1
        self.statuses[status] += 1
        source.statuses[status] += 1
        source.latencies.add(seconds)
        if reward is not None:
            self.rewards.add(reward, reward)
            source.rewards.add(reward, reward)
            for key, value in _components(number, row):
                _slot(self.components, key, OTHERS, Values).add(value, reward)
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

    def _add_reason(self, number: int, status: str, message: str) -> None:
        match = _EXCEPTION.match(message)
        key, others = (status, match[1] if match else ""), (status, OTHERS)
        reason = _slot(self.reasons, key, others, lambda: Reason(*key, number, _excerpt(message)))
        reason.count += 1

    def _add_slow(self, number: int, row: Row, source: str, seconds: float, status: str) -> None:
        if len(self._slowest) < SLOWEST or (seconds, -number) > self._slowest[0][:2]:
            shown = (_as_text(look_up(row, path)) for path in (self.fields.prompt, self.fields.response))
            entry = (seconds, -number, Slow(number, source, seconds, status, *map(_excerpt, shown)))
            (heapq.heappush if len(self._slowest) < SLOWEST else heapq.heappushpop)(self._slowest, entry)


def write_report(output: Path, html: Path) -> None:
    """Write the page about the scored file `output` to `html`. Raises DataError where `output` is none."""
    if not output.exists() and output.with_name(output.name + ".partial").is_dir():
        raise DataError(f"{output}: this run has not ended; finish it with `reward-loop score INPUT -o {output} --resume`")
    summary = _summary_of(output)
    stats = _collect(output, summary)
    template = _environment().get_template("report.html")
    config = list(_flat(cast("dict[str, Any]", summary.get("config") or {})))
    page = template.render(name=output.name, stats=stats, summary=summary, config=config)
    html.write_text(page, encoding="utf-8")


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


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("show_count", "show_number", "show_share", "show_seconds", "distribution_svg", "latency_svg")
    environment.globals.update({name: getattr(report_plots, name) for name in names})
    return environment


def _slot(known: dict[Any, T], key: object, others: object, make: Callable[[], T]) -> T:
    """The entry of `key`, made where there is none; that of `others` where there are too many."""
    if key not in known and len(known) >= _MOST_NAMES:
        key = others
    if key not in known:
        known[key] = make()
    return known[key]


def _components(row_number: int, row: Row) -> Iterator[tuple[str, float]]:
    info = row.get("reward_extra_info")
    try:
        info = json.loads(info) if isinstance(info, str) else info
    except ValueError as error:
        raise DataError(f"row {row_number}: reward_extra_info is not valid JSON ({error}); score the file again") from error
    for key, value in cast("dict[str, Any]", info or {}).items():
        if (number := _finite(value)) is not None:
            yield key, number


def _number(number: int, row: Row, name: str) -> float | None:
    value = row.get(name)
    finite = _finite(value)
    if finite is None and value is not None:
        raise DataError(f"row {number}: {name} is {value!r}, not a finite number; score the file again")
    return finite


def _finite(value: object) -> float | None:
    """The number that `value` is (a bool counts as 0 or 1); None for anything else."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


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
