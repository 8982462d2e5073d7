from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward_loop.errors import DataError
from reward_loop.rubrics.logger import RewardLogger
from reward_loop.runs.report import write_report
from reward_loop.runs.report_plots import weight_svg
from reward_loop.runs.report_rubrics import RubricStats
from reward_loop.runs.report_weights import WeightHistory, WeightLine, audit_of, read_weights


class Sections(HTMLParser):
    """The text under each heading of a page, and the number of plots and tables there."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: dict[str, str] = {}
        self.tags: dict[str, list[str]] = {}
        self._heading = ""
        self._in_heading = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(self._heading, []).append(tag)
        if tag == "h2":
            self._heading, self._in_heading = "", True

    def handle_endtag(self, tag: str) -> None:
        self._in_heading = self._in_heading and tag != "h2"

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self._heading += data
        else:
            self.text[self._heading] = self.text.get(self._heading, "") + " ".join(data.split()) + " "


def row(reward: float | None = 1.0, source: str = "code", **info: Any) -> dict[str, Any]:
    return {
        "prompt": "Sort a list.",
        "response": "sorted(x)",
        "data_source": source,
        "reward": reward,
        "token_rewards": None,
        "reward_status": "ok" if reward is not None else "error",
        "reward_message": "" if reward is not None else "JudgeError: no answer",
        "reward_seconds": 0.01,
        "reward_extra_info": info,
    }


def rubric_row(number: int, **more: Any) -> dict[str, Any]:
    """A row as the reward manager `rubric` leaves it; the weight of style is halved at configuration 2."""
    tests, style = float(number % 2), 0.5 + 0.01 * (number % 10)
    weights = {"tests": 1.0, "style": 0.4 if number < 20 else 0.2}
    info = {
        "reward_components": {"tests": tests, "style": style},
        "reward_weights": weights,
        "config_version": 1 if number < 20 else 2,
        "judge_calls": 2,
        "judge_prompt_tokens": 100,
        "judge_completion_tokens": 10,
        "judge_cost": 0.25,
    }
    reward = tests * weights["tests"] + style * weights["style"]
    return row(reward, "code" if number % 4 else "math", **{**info, **more})


def page_of(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> str:
    output, html = tmp_path / "scored.jsonl", tmp_path / "scored.html"
    output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_report(output, html, **more)
    return html.read_text("utf-8")


def sections_of(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> Sections:
    return Sections(page_of(tmp_path, rows, **more))


def stats_of(*rows: dict[str, Any]) -> RubricStats:
    stats = RubricStats()
    for number, one in enumerate(rows):
        stats.add(number, one["data_source"], one["reward_extra_info"], one["reward"])
    return stats


def test_a_run_of_a_rubric_pipeline_shows_its_rubrics_weights_and_judges(tmp_path: Path) -> None:
    sections = sections_of(tmp_path, [rubric_row(number) for number in range(40)])
    assert list(sections.text)[3:] == ["Latency", "Rubrics", "Weights over time", "Judge cost", "Slowest samples"]
    assert "tests mean 0.5 · std 0.5 · r 0.99 · 40 rows · adds 0.5" in sections.text["Rubrics"]
    assert "style mean 0.545" in sections.text["Rubrics"]
    assert "adds 0.1635 on average" in sections.text["Rubrics"]
    assert sections.tags["Rubrics"].count("svg") == sections.tags["Rubrics"].count("table") == 2
    assert "by configuration version" in sections.text["Weights over time"]
    assert "style 0.4 to 0.2 · 1 change " in sections.text["Weights over time"]
    assert sections.tags["Weights over time"].count("svg") == sections.tags["Weights over time"].count("table") == 1
    cost = sections.text["Judge cost"].split("cost per row ")[1]
    assert " ".join(cost.split()) == "code 30 60 3,000 300 7.5 0.25 math 10 20 1,000 100 2.5 0.25 all 40 80 4,000 400 10 0.25"


def test_a_run_without_rubrics_shows_nothing_of_them(tmp_path: Path) -> None:
    sections = sections_of(tmp_path, [row(acc=0.5), row(0.0, acc=1.0)])
    assert [name for name in sections.text if name] == [
        "Rewards by data source",
        "Failures by reason",
        "Latency",
        "Component rewards",
        "Slowest samples",
    ]


def test_what_rubrics_said_besides_their_scores_is_among_the_components(tmp_path: Path) -> None:
    sections = sections_of(tmp_path, [rubric_row(number, **{"style.lines": number}) for number in range(3)])
    assert "style.lines mean 1" in sections.text["Component rewards"]
    assert "config_version" not in sections.text["Component rewards"]
    assert "judge_calls" not in sections.text["Component rewards"]


def test_weights_that_never_changed_and_judges_that_were_never_called_have_no_section(tmp_path: Path) -> None:
    sections = sections_of(tmp_path, [rubric_row(number, judge_calls=0) for number in range(5)])
    assert "Rubrics" in sections.text
    assert not {"Weights over time", "Judge cost"} & set(sections.text)


def test_a_rubric_that_failed_is_named_with_its_first_message(tmp_path: Path) -> None:
    failed = {"style": "JudgeError: no <answer>", "tests": {"odd": 1}}
    rows = [rubric_row(0), *(rubric_row(number, rubric_failures=failed) for number in range(1, 4))]
    text = sections_of(tmp_path, rows).text["Rubrics that failed"]
    assert "style 3 JudgeError: no <answer> (row 1) " in text.replace("  ", " ")
    assert '{"odd": 1}' in text


def test_a_rubric_that_was_not_run_is_in_no_mean_and_a_row_without_a_reward_in_none() -> None:
    stats = stats_of(
        row(1.0, reward_components={"per_turn": 0.5, "at_end": None}),
        row(0.0, reward_components={"per_turn": 0.7, "at_end": 1.0}),
        row(None, reward_components={"per_turn": 0.0}),
    )
    assert {name: (one.scores.count, one.scores.mean) for name, one in stats.rubrics.items()} == {
        "per_turn": (2, pytest.approx(0.6)),
        "at_end": (1, 1.0),
    }


def test_a_missing_weight_is_1() -> None:
    stats = stats_of(row(1.0, reward_components={"a": 0.5, "b": 0.5}, reward_weights={"b": -10}))
    assert (stats.rubrics["a"].weighted.mean, stats.rubrics["b"].weighted.mean) == (0.5, -5.0)


@pytest.mark.parametrize("odd", [None, "text", 3, [0.1, 0.2], {"a": "high"}, {"a": None}, {"a": float("nan")}])
def test_columns_of_these_names_that_hold_something_else_are_left_out(tmp_path: Path, odd: Any) -> None:
    columns = ("reward_components", "reward_weights", "rubric_failures", "config_version", "judge_calls", "judge_cost")
    rows = [row(1.0, **dict.fromkeys(columns, odd)), row(0.0, **dict.fromkeys(columns, odd))]
    sections = sections_of(tmp_path, rows)
    assert not {"Rubrics", "Weights over time"} & set(sections.text)


def test_rubrics_beyond_a_bound_are_counted_together() -> None:
    components = {f"rubric {number}": 0.5 for number in range(1000)}
    assert len(stats_of(row(1.0, reward_components=components)).rubrics) == 41


def test_what_users_wrote_is_escaped(tmp_path: Path) -> None:
    attack = '"><script>alert(1)</script>'
    info = {
        "reward_components": {attack: 0.5},
        "rubric_failures": {attack: attack},
        "judge_calls": 1,
    }
    rows = [
        row(1.0, attack, **info, reward_weights={attack: 1.0}, config_version=1),
        row(0.5, attack, **info, reward_weights={attack: 0.5}, config_version=2),
    ]
    page = page_of(tmp_path, rows)
    assert "Weights over time" in page
    assert "<script" not in page
    assert Sections(page).text["Rubrics"].count(attack) == 1


def test_a_parquet_file_and_its_json_lines_give_the_same_page(tmp_path: Path) -> None:
    rows = [rubric_row(number) for number in range(30)]
    table = pa.Table.from_pylist([one | {"reward_extra_info": json.dumps(one["reward_extra_info"])} for one in rows])
    pq.write_table(table, tmp_path / "scored.parquet")
    write_report(tmp_path / "scored.parquet", tmp_path / "parquet.html")
    lines = page_of(tmp_path, rows)
    assert (tmp_path / "parquet.html").read_text("utf-8").replace("scored.parquet", "scored.jsonl") == lines


AUDIT = [
    {
        "version": 1,
        "time": 1.0,
        "who": "start",
        "old": {},
        "new": {"weights": {"tests": 1.0, "style": 0.4}},
        "applies": "immediate",
    },
    {
        "version": 2,
        "time": 2.0,
        "who": "x",
        "old": {"weights": {"style": 0.4}},
        "new": {"weights": {"style": 0.1}},
        "applies": "next_reset",
    },
    {
        "version": 3,
        "time": 3.0,
        "who": "x",
        "old": {"enabled": {"tests": True}},
        "new": {"enabled": {"tests": False}},
        "applies": "next_reset",
    },
    {
        "version": 9,
        "time": 9.0,
        "who": "x",
        "old": {"weights": {"style": 0.1}},
        "new": {"weights": {"style": 0.0}},
        "applies": "next_reset",
    },
]


def write_lines(path: Path, lines: list[Any], *, end: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + end, encoding="utf-8")
    return path


def test_an_audit_gives_every_change_also_those_that_no_row_saw(tmp_path: Path) -> None:
    history = read_weights(write_lines(tmp_path / "audit.jsonl", AUDIT))
    assert history.axis == "configuration version"
    assert history.lines() == [WeightLine("style", ((1, 0.4), (2, 0.1), (9, 0.0)), 9, 2)]


def test_an_audit_that_begins_in_the_middle_begins_with_what_was_there(tmp_path: Path) -> None:
    history = read_weights(write_lines(tmp_path / "audit.jsonl", AUDIT[1:2]))
    assert history.lines() == [WeightLine("style", ((1, 0.4), (2, 0.1)), 2, 1)]


def test_the_audit_that_the_run_was_configured_with_is_found(tmp_path: Path) -> None:
    audit = write_lines(tmp_path / "audit.jsonl", AUDIT)
    summary = {"config": {"reward_model": {"reward_kwargs": {"config_server": {"port": 1, "audit": str(audit)}}}}}
    (tmp_path / "scored.jsonl.summary.json").write_text(json.dumps(summary), encoding="utf-8")
    rows = [rubric_row(number) for number in range(40)]
    assert "style 0.4 to 0 · 2 changes" in sections_of(tmp_path, rows).text["Weights over time"]
    audit.unlink()
    assert "style 0.4 to 0.2 · 1 change" in sections_of(tmp_path, rows).text["Weights over time"]


@pytest.mark.parametrize("summary", [{}, {"config": None}, {"config": {"reward_model": {"reward_kwargs": [1]}}}])
def test_a_run_without_a_live_configuration_has_no_audit(summary: dict[str, Any]) -> None:
    assert audit_of(summary) is None


def test_a_reward_log_gives_the_weights_by_step(tmp_path: Path) -> None:
    path = tmp_path / "rewards.jsonl"
    with RewardLogger("jsonl", path=path) as logger:
        for step in range(10):
            logger.log_step(step=step, reward=0.0, weights={"tests": 1.0, "style": 1.0 if step < 6 else 0.5})
    with path.open("a") as file:
        file.write('{"step": 10, "reward/wei')  # a process that was killed
    rows = [rubric_row(number) for number in range(4)]
    text = sections_of(tmp_path, rows, weights=path).text["Weights over time"]
    assert "by step" in text
    assert "style 1 to 0.5 · 1 change" in text
    assert "tests" not in text


@pytest.mark.parametrize("lines", [[], [{"loss": 1}], [[1]], [{"version": 1, "new": 3, "old": None}], [{"step": 1}]])
def test_a_file_without_weights_says_what_is_wanted(tmp_path: Path, lines: list[Any]) -> None:
    path = write_lines(tmp_path / "other.jsonl", lines, end="\x00garbage")
    with pytest.raises(DataError, match="holds no weights; give the audit"):
        read_weights(path)


def test_a_missing_file_of_weights_is_an_error_where_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: the weights can't be read"):
        page_of(tmp_path, [rubric_row(0)], weights=tmp_path / "none.jsonl")


def test_versions_may_come_in_any_order_and_are_bounded() -> None:
    history = WeightHistory("configuration version")
    for version in reversed(range(20_000)):
        history.add(version, {"style": float(version)})
    [line] = history.lines()
    assert history.cut
    assert len(line.points) == 200
    assert (line.points[0], line.points[-1]) == ((10_000, 10_000.0), (19_999, 19_999.0))
    assert line.changes == 9_999


def test_a_line_of_weights_is_a_staircase_with_zero_in_sight() -> None:
    plot = str(weight_svg([(1, 1.0), (5, -1.0)], 9, "label <b>"))
    assert '<path class="line" d="M44.0 18.0H188.0V148.0H332.0"/>' in plot
    assert "&lt;b&gt;" in plot
    assert plot.count("<circle") == 2
    assert [f">{text}</text>" in plot for text in ("1", "0", "\N{MINUS SIGN}1", "9")] == [True] * 4


def test_a_weight_that_was_set_once_has_a_plot_of_one_point() -> None:
    assert "<path" in str(weight_svg([(3, 0.0)], 3, "label"))
