from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward_loop.errors import RewardLoopError
from reward_loop.rubrics.judges.usage import JudgeUsage
from reward_loop.rubrics.logger import ConfigUpdate, MemoryBackend, Record, RewardLogger


class StuckBackend(MemoryBackend):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let_go = threading.Event(), threading.Event()

    def write(self, record: Record) -> None:
        self.entered.set()
        assert self.let_go.wait(30)
        super().write(record)


class FailingBackend(MemoryBackend):
    """Fails at some steps, as a tracker that can't be reached for a while."""

    def __init__(self, *steps: int) -> None:
        super().__init__()
        self._steps = steps

    def write(self, record: Record) -> None:
        if record.step in self._steps:
            raise ConnectionError("no tracker")
        super().write(record)


def logged(memory: MemoryBackend) -> list[tuple[int, dict[str, float]]]:
    """Step and numbers of each record, without how many samples it has."""
    return [
        (record.step, {name: value for name, value in record.numbers().items() if name != "progress/samples"})
        for record in memory.records
    ]


def test_the_numbers_of_a_step_have_the_names_of_the_seed() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        logger.log_step(
            step=3, episode=7, reward=0.5, components={"accuracy": 0.85, "style": 0.72}, env_id="chess", weights={"style": 0.3}
        )
        logger.log_config_update(2, {"weights": {"style": 0.3}}, step=3)
        logger.log_judge_usage(JudgeUsage(1, 100, 10, 0.5), step=3)
        logger.log_judge_usage(JudgeUsage(1, 100, 10), step=3)
    [record] = memory.records
    assert record.step == 3
    assert record.numbers() == {
        "reward/total": 0.5,
        "reward/accuracy": 0.85,
        "reward/style": 0.72,
        "reward/weights/style": 0.3,
        "config/updates": 2.0,
        "env/chess/reward": 0.5,
        "progress/samples": 1.0,
        "progress/episode": 7.0,
        "judge/calls": 2.0,
        "judge/prompt_tokens": 200.0,
        "judge/completion_tokens": 20.0,
        "judge/cost": 0.5,
    }
    assert record.updates == (ConfigUpdate(2, {"weights": {"style": 0.3}}),)
    assert memory.closed


def test_a_step_is_written_when_the_next_begins_and_the_last_one_at_the_end() -> None:
    memory = MemoryBackend()
    logger = RewardLogger(memory)
    logger.log_step(step=0, reward=1.0)
    assert logger.flush()
    logger.log_step(step=1, reward=2.0)
    logger.log_step(step=1, reward=4.0)
    assert [record.step for record in memory.records] == [0]
    logger.close()
    assert logged(memory) == [(0, {"reward/total": 1.0}), (1, {"reward/total": 3.0})]


def test_a_mean_is_over_the_samples_that_have_the_value() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        logger.log_step(step=0, reward=1.0, components={"per_turn": 0.2, "at_end": None})
        logger.log_step(step=0, reward=None, components={"per_turn": 0.4})
        logger.log_step(step=0, reward=0.0, components={"per_turn": 0.6, "at_end": 1.0})
    assert memory.records[0].metrics == {
        "reward/total": 0.5,
        "reward/per_turn": pytest.approx(0.4),
        "reward/at_end": 1.0,
        "progress/samples": 3.0,
    }


def test_weights_are_written_at_first_and_when_they_change() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        for step, style in enumerate([1.0, 1.0, 0.5, 0.5, 0.5, 1.0]):
            logger.log_step(step=step, reward=0.0, weights={"style": style, "tests": 2.0})
    assert [dict(record.weights) for record in memory.records] == [
        {"style": 1.0, "tests": 2.0},
        {},
        {"style": 0.5},
        {},
        {},
        {"style": 1.0},
    ]


def test_a_sample_of_an_earlier_step_counts_in_the_current_one_and_this_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        logger.log_step(step=4, reward=0.0)
        logger.log_step(step=5, reward=1.0)
        logger.log_step(step=4, reward=0.0)
        logger.log_step(step=3, reward=0.0)
        logger.flush()
        logger.log_step(step=2, reward=0.5)
        assert logger.late_calls == 3
    assert [(step, numbers["reward/total"]) for step, numbers in logged(memory)] == [
        (4, 0.0),
        (5, pytest.approx(1 / 3)),
        (5, 0.5),
    ]
    assert [record.getMessage()[:32] for record in caplog.records] == ["step=4 comes after step=5 and is"]


def test_steps_of_numpy_are_steps() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        logger.log_step(step=np.int64(3), episode=np.int32(2), reward=np.float32(0.5))  # type: ignore[arg-type]
    assert logged(memory) == [(3, {"reward/total": 0.5, "progress/episode": 2.0})]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"components": {"total": 1.0}}, "another name"),
        ({"components": {"weights": 1.0}}, "another name"),
        ({"weights": {"total": 1.0}}, "another name"),
        ({"components": {"a/b": 1.0}}, "1 to 64 of"),
        ({"components": {"..": 1.0}}, "1 to 64 of"),
        ({"components": {"": 1.0}}, "1 to 64 of"),
        ({"components": {"x" * 65: 1.0}}, "1 to 64 of"),
        ({"components": {"a\n": 1.0}}, "1 to 64 of"),
        ({"components": {3: 1.0}}, "1 to 64 of"),
        ({"components": {"a": float("nan")}}, "reward/a: .*finite"),
        ({"components": {"a": "1"}}, "reward/a: .*finite"),
        ({"reward": float("inf")}, "reward/total: .*finite"),
        ({"weights": {"a": float("nan")}}, "the weight of rubric a is nan"),
        ({"weights": {"a": None}}, "the weight of rubric a is None"),
        ({"step": -1}, "step=-1 must be a whole number"),
        ({"step": 1.5}, "step=1.5 must be a whole number"),
        ({"step": True}, "step=True must be a whole number"),
        ({"step": None}, "step=None must be a whole number"),
        ({"episode": "x"}, "episode='x' must be a whole number"),
    ],
)
def test_what_can_not_be_logged_is_refused_and_counts_nowhere(wrong: dict[str, Any], said: str) -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        log_step: Callable[..., None] = logger.log_step
        log_step(step=0, reward=1.0, components={"a": 1.0})
        with pytest.raises((ValueError, TypeError), match=said):
            log_step(**{"step": 0, "reward": 0.0, "components": {"a": 0.0}, "weights": {"a": 1.0}, **wrong})
    assert logged(memory) == [(0, {"reward/total": 1.0, "reward/a": 1.0})]


def test_environments_have_metrics_of_their_own_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        for number in range(100):
            logger.log_step(step=0, reward=float(number), env_id=f"org/env {number}")
    names = [name for name in memory.records[0].metrics if name.startswith("env/")]
    assert names == [f"env/org_env_{number}/reward" for number in range(64)]
    assert memory.records[0].metrics["reward/total"] == 49.5
    assert len(caplog.records) == 1


def test_a_backend_that_fails_costs_its_step_only_and_the_weights_come_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    memory = FailingBackend(1, 2)
    with RewardLogger(memory) as logger:
        for step in range(5):
            logger.log_step(step=step, reward=float(step), weights={"style": 0.0 if step == 0 else 1.0})
            logger.flush()
        assert logger.lost_records == 2
    assert logged(memory) == [
        (0, {"reward/total": 0.0, "reward/weights/style": 0.0}),
        (3, {"reward/total": 3.0, "reward/weights/style": 1.0}),
        (4, {"reward/total": 4.0}),
    ]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "backend=FailingBackend failed, step=1 is lost: ConnectionError: no tracker"),
        (logging.WARNING, "backend=FailingBackend writes again, after lost steps=2"),
    ]


def test_training_goes_on_while_the_backend_hangs_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    stuck = StuckBackend()
    with RewardLogger(stuck, queue_records=2) as logger:
        logger.log_step(step=0, reward=1.0)
        logger.log_step(step=1, reward=1.0)
        assert stuck.entered.wait(10)
        for step in range(2, 1000):
            logger.log_step(step=step, reward=float(step % 2))
            logger.log_config_update(step, {}, step=step)
        assert not logger.flush(timeout_s=0.01)
        stuck.let_go.set()
    assert [record.step for record in stuck.records] == [0, 1, 2, 999]
    assert sum(record.metrics["progress/samples"] for record in stuck.records) == 1000
    assert sum(record.metrics["progress/samples"] * record.metrics["reward/total"] for record in stuck.records) == pytest.approx(
        501
    )
    assert [update.version for record in stuck.records for update in record.updates] == list(range(2, 1000))
    assert len([record for record in caplog.records if "far behind" in record.getMessage()]) == 1


def test_closing_gives_up_on_a_backend_that_hangs_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    stuck = StuckBackend()
    logger = RewardLogger(stuck, timeout_s=0.05)
    logger.log_step(step=0, reward=1.0)
    logger.close()
    assert "the last steps may be missing" in caplog.text
    stuck.let_go.set()


def test_a_closed_logger_takes_nothing_and_closes_once() -> None:
    memory = MemoryBackend()
    logger = RewardLogger(memory)
    logger.close()
    logger.close()
    assert logger.flush()
    with pytest.raises(RewardLoopError, match="closed"):
        logger.log_step(step=0, reward=1.0)
    assert not memory.records


def test_a_step_of_nothing_is_not_written() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:
        logger.flush()
        logger.log_judge_usage(JudgeUsage(1), step=1)
    assert [record.step for record in memory.records] == [1]


def test_samples_of_many_threads_are_all_counted() -> None:
    memory = MemoryBackend()
    with RewardLogger(memory) as logger:

        def work() -> None:
            for step in range(200):
                logger.log_step(step=step, reward=1.0, components={"a": 0.5}, weights={"a": 1.0})

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(record.metrics["progress/samples"] for record in memory.records) == 1600
    assert [record.step for record in memory.records] == sorted(record.step for record in memory.records)


def test_a_program_that_is_killed_has_written_the_steps_before_its_last(tmp_path: Path) -> None:
    program = """
import os, signal
from reward_loop.rubrics.logger import RewardLogger
logger = RewardLogger("jsonl")
for step in range(3):
    logger.log_step(step=step, reward=float(step))
    if step == 1:
        logger.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, timeout=60).returncode == -9
    assert [json.loads(line)["step"] for line in (tmp_path / "rewards.jsonl").read_text().splitlines()] == [0, 1]


def test_a_program_that_forgets_to_close_has_its_last_step_written(tmp_path: Path) -> None:
    program = "from reward_loop.rubrics.logger import RewardLogger\nRewardLogger('jsonl').log_step(step=1, reward=0.5)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    assert json.loads((tmp_path / "rewards.jsonl").read_text())["reward/total"] == 0.5
