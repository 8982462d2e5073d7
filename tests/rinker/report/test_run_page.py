"""The page of a run: what it shows, and what it is made of when a run was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward_loop.errors import DataError
from reward_loop.rinker.report.curves import by_section, read_curves
from reward_loop.rinker.report.page import write_run_report


def write_run(folder: Path, steps: int = 3) -> Path:
    lines = [
        {"step": step, "time": 1.0, "reward/total": 0.1 * step, "optim/entropy": 1.0, "time/total": 2.0, "lag": step, "note": "x"}
        for step in range(steps)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": 9, "rew')
    (folder / "config.json").write_text(json.dumps({"kind": "rl", "model": {"base_model": "<b>tiny</b>"}, "loggers": []}))
    checkpoint = {"name": "000002", "batch": 2, "state_path": "tinker://m/weights/000002"}
    (folder / "checkpoints.jsonl").write_text(f"{json.dumps(checkpoint)}\n")
    return folder


def test_the_page_has_a_curve_of_each_metric_and_escapes_what_users_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_run_report(write_run(tmp_path), page)
    text = page.read_text("utf-8")
    for word in (
        "reward/total",
        "optim/entropy",
        "time/total",
        "Everything else",
        "tinker://m/weights/000002",
        "model.base_model",
    ):
        assert word in text
    assert "&lt;b&gt;tiny" in text
    assert "<b>tiny" not in text
    assert "<script" not in text
    assert "note" not in [curve.name for curve in read_curves(tmp_path / "metrics.jsonl")]
    assert text.count("<polyline") == 4


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    write_run(tmp_path)
    for page in pages:
        write_run_report(tmp_path, page)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_many_steps_are_drawn_as_means_of_neighbours(tmp_path: Path) -> None:
    [curve] = [one for one in read_curves(write_run(tmp_path, 1_000) / "metrics.jsonl") if one.name == "lag"]
    assert len(curve.points) == 334
    assert curve.points[0] == (2, 1.0)
    assert curve.last == 999


def test_what_everybody_looks_at_first_comes_first(tmp_path: Path) -> None:
    sections = by_section(read_curves(write_run(tmp_path) / "metrics.jsonl"))
    assert list(sections) == ["Rewards and accuracy", "Loss, distance and entropy", "Time and throughput", "Everything else"]


def test_where_there_is_no_run_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.jsonl: the metrics can't be read.*log_path of a run"):
        write_run_report(tmp_path, tmp_path / "page.html")
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match="holds no step yet"):
        write_run_report(tmp_path, tmp_path / "page.html")
    with pytest.raises(DataError, match="can't be written"):
        write_run_report(write_run(tmp_path), tmp_path / "no folder" / "page.html")
