import json
import math
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.runs.fields import FieldMap
from reward_loop.runs.report import RunStats, write_report
from reward_loop.runs.report_plots import Bar, distribution_svg, show_number, show_seconds, show_share
from reward_loop.runs.report_values import Distribution, Latencies, Values

FIELDS = FieldMap("response", data_source="data_source", prompt="prompt")
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


def scored(reward: float | None = 1.0, status: str = "ok", message: str = "", **columns: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "prompt": "1+1?",
        "response": "2",
        "data_source": "gsm8k",
        "reward": reward,
        "token_rewards": None,
        "reward_status": status,
        "reward_message": message,
        "reward_seconds": 0.01,
        "reward_extra_info": {},
    }
    return row | columns


def stats_of(*rows: dict[str, Any]) -> RunStats:
    stats = RunStats(FIELDS)
    for number, row in enumerate(rows):
        stats.add(number, row)
    return stats


def write_jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def page_of(output: Path) -> str:
    html = output.with_suffix(".html")
    write_report(output, html)
    return html.read_text("utf-8")


class Outline(HTMLParser):
    """The tags of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_rows_are_counted_by_status_and_source() -> None:
    stats = stats_of(scored(1.0), scored(0.0), scored(None, "error", "ValueError: x", data_source="math"))
    assert (stats.rows, stats.failures, dict(stats.statuses)) == (3, 1, {"ok": 2, "error": 1})
    assert [(name, one.rows) for name, one in stats.by_rows()] == [("gsm8k", 2), ("math", 1)]


def test_a_failed_row_is_in_no_mean() -> None:
    assert stats_of(scored(1.0), scored(None, "timeout", "RewardTimeout: slow")).rewards.mean == 1.0


def test_failures_are_grouped_by_status_and_exception_class_with_the_first_message() -> None:
    stats = stats_of(
        scored(None, "error", "ValueError: first"),
        scored(None, "timeout", "RewardTimeout: 10 s"),
        scored(None, "error", "ValueError: second"),
        scored(None, "unscorable", "the response is empty"),
    )
    assert [(one.status, one.exception, one.count, one.first_message) for one in stats.by_count()] == [
        ("error", "ValueError", 2, "ValueError: first"),
        ("timeout", "RewardTimeout", 1, "RewardTimeout: 10 s"),
        ("unscorable", "", 1, "the response is empty"),
    ]


def test_the_slowest_samples_are_kept_slowest_first_and_the_earlier_of_equals() -> None:
    stats = stats_of(*(scored(reward_seconds=float(number // 2)) for number in range(60)))
    assert [slow.row for slow in stats.slowest] == [row for pair in range(29, 19, -1) for row in (2 * pair, 2 * pair + 1)]


def test_only_numbers_and_booleans_are_component_rewards() -> None:
    info = {"acc": True, "len": -0.5, "pred": "18", "none": None, "list": [1], "nan": math.nan, "huge": 10**400}
    stats = stats_of(scored(reward_extra_info=info), scored(0.0, reward_extra_info='{"acc": false}'))
    assert {key: (values.count, values.mean) for key, values in stats.components.items()} == {
        "acc": (2, 0.5),
        "len": (1, -0.5),
    }
    assert stats.components["acc"].correlation == pytest.approx(1.0)


def test_token_ids_and_chats_are_shown_as_a_person_reads_them() -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    slow = stats_of(scored(prompt=chat, response=list(range(100)))).slowest[0]
    assert slow.prompt == "hello"
    assert slow.response.startswith("100 token ids: 0, 1,")


def test_sources_beyond_a_bound_are_counted_together() -> None:
    stats = stats_of(*(scored(data_source=f"source {number}") for number in range(1_000)))
    assert len(stats.sources) == 41
    assert stats.sources["(others)"].rows == 960


@settings(deadline=None)
@given(st.lists(finite, min_size=1, max_size=300))
def test_a_distribution_loses_no_value_and_stays_small(values: list[float]) -> None:
    distribution = Distribution()
    for value in values:
        distribution.add(value)
    bars = distribution.bars()
    assert sum(bar.count for bar in bars) == len(values)
    assert len(bars) <= 50
    for bar in bars:
        inside = sum(bar.low == value or bar.low <= value < bar.high for value in values)
        assert inside == bar.count


def test_few_distinct_rewards_are_counted_exactly() -> None:
    distribution = Distribution()
    for value in [0.0, 1.0, 1.0, -0.5] * 1_000:
        distribution.add(value)
    assert distribution.bars() == [Bar(-0.5, -0.5, 1000), Bar(0.0, 0.0, 1000), Bar(1.0, 1.0, 2000)]


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200))
def test_percentiles_of_few_samples_are_exact(seconds: list[float]) -> None:
    latencies = Latencies()
    for value in seconds:
        latencies.add(value)
    ordered = sorted(seconds)
    expected = [ordered[max(1, math.ceil(q * len(ordered))) - 1] for q in (0.5, 0.9, 0.95, 0.99, 1.0)]
    assert [value for _, value in latencies.percentiles()] == expected


def test_percentiles_of_many_samples_are_within_one_percent_and_the_maximum_is_exact() -> None:
    seconds = np.exp(np.random.default_rng(0).normal(-6, 2, 50_000))
    latencies = Latencies()
    for value in seconds:
        latencies.add(float(value))
    percentiles = dict(latencies.percentiles())
    for name, share in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        assert percentiles[name] == pytest.approx(np.percentile(seconds, share), rel=0.015)
    assert percentiles["max"] == seconds.max()


@given(st.lists(st.tuples(st.integers(-100, 100), st.integers(-100, 100)), min_size=2))
def test_component_statistics_are_those_of_the_textbook(pairs: list[tuple[int, int]]) -> None:
    values = Values()
    for value, reward in pairs:
        values.add(float(value), float(reward))
    left, right = zip(*pairs, strict=True)
    assert values.mean == pytest.approx(statistics.fmean(left), abs=1e-9)
    assert values.std == pytest.approx(statistics.pstdev(left), abs=1e-9)
    if len(set(left)) > 1 and len(set(right)) > 1:
        assert values.correlation == pytest.approx(statistics.correlation(left, right), abs=1e-9)
    else:
        assert values.correlation is None


def test_a_page_runs_nothing_loads_nothing_and_escapes_what_users_wrote(tmp_path: Path) -> None:
    attack = "<script>alert(1)</script>"
    quoted = '"><img src=x onerror=alert(1)>'
    output = write_jsonl(
        tmp_path / "scored.jsonl",
        scored(response=attack, prompt=attack, data_source=quoted, reward_extra_info={attack: 1, quoted: 0.5}),
        scored(None, "error", f"ValueError: {attack}"),
    )
    summary = {"config": {attack: attack}, "input": attack, "version": attack, "fields": FIELDS.as_dict()}
    (tmp_path / "scored.jsonl.summary.json").write_text(json.dumps(summary), encoding="utf-8")
    page = page_of(output)
    outline = Outline(page)
    assert not {"script", "img", "link", "iframe", "object"} & set(outline.tags)
    assert not [name for name, _ in outline.attributes if name.startswith("on") or name in ("src", "href")]
    assert attack in outline.text
    assert "http://" not in page
    assert "https://" not in page


def test_a_parquet_file_and_its_json_lines_give_the_same_page(tmp_path: Path) -> None:
    rows = [scored(number % 3 / 2, reward_extra_info={"acc": number % 2 == 0}) for number in range(30)]
    table = pa.Table.from_pylist([row | {"reward_extra_info": json.dumps(row["reward_extra_info"])} for row in rows])
    pq.write_table(table, tmp_path / "a.parquet")
    lines = page_of(write_jsonl(tmp_path / "a.jsonl", *rows))
    assert page_of(tmp_path / "a.parquet").replace("a.parquet", "a.jsonl") == lines


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "a.jsonl", *(scored(math.sin(number)) for number in range(50)))
    assert page_of(output) == page_of(output)


def test_every_plot_has_a_name_and_a_table(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "a.jsonl", scored(reward_extra_info={"acc": 1}))
    outline = Outline(page_of(output))
    assert outline.tags.count("svg") == sum(name == "aria-label" and "table" in str(text) for name, text in outline.attributes)
    assert outline.tags.count("table") >= outline.tags.count("svg") == 3


def test_the_config_is_shown_as_overrides_with_credentials_masked(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "a.jsonl", scored())
    config = {"reward_model": {"num_workers": 8, "max_tokens": 5}, "kwargs": {"api_key": "sk-123"}}
    (tmp_path / "a.jsonl.summary.json").write_text(json.dumps({"config": config}), encoding="utf-8")
    page = page_of(output)
    assert "reward_model.num_workers" in page
    assert "reward_model.max_tokens" in page
    assert "sk-123" not in page


@pytest.mark.parametrize("rows", [[scored(None, "error", "")], [scored(reward_seconds=0.0)], [scored(-3.0)]])
def test_runs_without_rewards_time_or_messages_have_a_page(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert "Rewards of a.jsonl" in page_of(write_jsonl(tmp_path / "a.jsonl", *rows))


def test_a_file_that_was_not_scored_says_how_to_score_it(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "raw.jsonl", {"response": "2", "data_source": "s"})
    with pytest.raises(DataError, match=r"lacks reward, reward_status.*reward-loop score .*raw"):
        page_of(output)


def test_a_run_that_has_not_ended_says_how_to_finish_it(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.partial").mkdir()
    with pytest.raises(DataError, match="--resume"):
        write_report(tmp_path / "a.parquet", tmp_path / "a.html")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        write_report(tmp_path / "a.parquet", tmp_path / "a.html")


@pytest.mark.parametrize("summary", ["{broken", "[1]", '{"fields": {"reply": "x"}}'])
def test_a_damaged_summary_is_an_error(tmp_path: Path, summary: str) -> None:
    output = write_jsonl(tmp_path / "a.jsonl", scored())
    (tmp_path / "a.jsonl.summary.json").write_text(summary, encoding="utf-8")
    with pytest.raises(DataError):
        page_of(output)


@pytest.mark.parametrize(
    "damage", [{"reward": "high"}, {"reward_status": None}, {"reward_seconds": "1"}, {"reward_extra_info": "{broken"}]
)
def test_a_damaged_row_is_named(damage: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"row 0: .*score the file again"):
        stats_of(scored(**damage))


def test_a_broken_line_in_a_scored_file_is_an_error(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "a.jsonl", scored())
    output.write_text(output.read_text("utf-8") + "{cut", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 2.*damaged"):
        page_of(output)


def test_numbers_read_well() -> None:
    assert [show_number(value) for value in (None, 0.37933, -2.0, 12_345.6)] == [
        "\N{EN DASH}",
        "0.3793",
        "\N{MINUS SIGN}2",
        "12,346",
    ]
    assert [show_seconds(value) for value in (2e-6, 0.0042, 1.5, 4_000.0)] == ["2 µs", "4.2 ms", "1.5 s", "4,000 s"]
    assert [show_share(part, 5_276) for part in (0, 1, 5_275, 5_276)] == ["0 %", "0.1 %", "99.9 %", "100 %"]


def test_a_plot_escapes_its_label() -> None:
    assert "<b>" not in distribution_svg([Bar(0, 0, 1)], "<b>")
