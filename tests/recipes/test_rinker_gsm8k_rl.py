"""recipes/rinker_gsm8k_rl: the path of a real model, with a tiny one of random weights in its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from recipes import tiny_models
from recipes.rinker_gsm8k_rl.problems import GSM8KEnv, dataset_builder
from reward_loop.errors import DataError
from reward_loop.functions.gsm8k import compute_score
from reward_loop.rinker.rendering import QwenRenderer, Renderer
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import ROOT, steps
from tests.vllm_servers import VLLMServers

RECIPE = ROOT / "recipes" / "rinker_gsm8k_rl"
PROBLEMS = ROOT / ".." / "shared" / "data" / "gsm8k" / "test.jsonl"
OWN = [
    {"question": f"Tom has {n} apples and buys {m}. How many has he?", "answer": f"{n} + {m} = {n + m}\n#### {n + m}"}
    for n, m in ((3, 4), (10, 2), (7, 7), (1, 0))
]
needs_data = pytest.mark.skipif(not PROBLEMS.exists(), reason="needs ../shared/data/gsm8k beside the checkout")


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def real(count: int) -> list[dict[str, Any]]:
    with PROBLEMS.open(encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]


def tiny(run: Path, problems: Path, **service: Any) -> RLConfig:
    """The recipe's own settings but for the model, its size, and where it is sampled."""
    config = yaml.safe_load((RECIPE / "config.yaml").read_text(encoding="utf-8"))
    config |= {"log_path": run, "renderer": "chatml", "service": service}
    config |= {"batch_size": 2, "group_size": 2, "max_tokens": 8, "max_steps": 2, "save_every": 0, "eval_every": 0}
    config["model"] |= {"base_model": str(tiny_models.judge(run / "model"))}
    config["data"] |= {"builder": str(RECIPE / "problems.py"), "kwargs": {"path": str(problems), "test_path": str(problems)}}
    return RLConfig.model_validate(config)


@pytest.fixture
def renderer() -> Renderer:
    return QwenRenderer(tiny_models.tokenizer(), default_system=None)


@pytest.mark.parametrize(
    ("answer", "correct", "formatted"), [("7 in all\n#### 7", 1, 1), ("#### 8", 0, 1), ("It is 7", 0, 0), ("#### 7 * 2", 0, 1)]
)
async def test_an_answer_is_judged_by_the_rule_of_the_reward_loop(
    renderer: Renderer, answer: str, correct: int, formatted: int
) -> None:
    env = GSM8KEnv(renderer, "Tom has 3 apples and buys 4. How many has he?", "7")
    result = await env.step([*renderer.tokenizer.encode(answer), renderer.tokenizer.eos_token_id])
    assert result.metrics == {"correct": correct, "format": formatted}
    assert env.reward_columns()["data_source"] == "openai/gsm8k"
    assert env.reward_columns()["reward_model"] == {"ground_truth": "7"}


async def test_a_row_that_is_no_problem_is_named(renderer: Renderer, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", [*OWN, {"question": "What?", "answer": "#### "}])
    with pytest.raises(DataError, match=r"rows\.jsonl, row 5: no GSM8K problem"):
        await dataset_builder(renderer, str(path), 2, 2, 0)()


@needs_data
async def test_every_real_problem_has_a_number_that_its_own_solution_gives(renderer: Renderer) -> None:
    train, test = await dataset_builder(renderer, str(PROBLEMS), 64, 8, 0, test_path=str(PROBLEMS), test_problems=64)()
    assert len(train) == 21
    assert test is not None
    assert len(test) == 1
    envs = [(await group.make_envs())[0] for group in test.get_batch(0)]
    truths = [env.reward_columns()["reward_model"]["ground_truth"] for env in envs]
    assert [compute_score(row["answer"], truth) for row, truth in zip(real(64), truths, strict=True)] == [1.0] * 64


def checked(run: Path) -> None:
    lines = steps(run)
    assert [line["step"] for line in lines] == [0, 1]
    assert all(0.0 <= line["reward/total"] <= 1.0 for line in lines)
    assert "test/env/all/correct" in lines[-1]


def test_two_steps_of_a_tiny_model(tmp_path: Path) -> None:
    train_rl(tiny(tmp_path, written(tmp_path / "problems.jsonl", OWN)))
    checked(tmp_path)


@needs_data
def test_two_steps_on_real_problems(tmp_path: Path) -> None:
    train_rl(tiny(tmp_path, written(tmp_path / "problems.jsonl", real(4))))
    checked(tmp_path)


@pytest.mark.slow
@pytest.mark.vllm
def test_two_steps_that_vllm_samples(tmp_path: Path, vllm_servers: VLLMServers) -> None:
    vllm_servers.make_room(1)
    runtime = {"sampler": "vllm", "vllm": {"max_model_len": 1024}}
    train_rl(tiny(tmp_path, written(tmp_path / "problems.jsonl", OWN), runtime=runtime))
    checked(tmp_path)
