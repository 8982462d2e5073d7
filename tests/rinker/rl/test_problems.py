"""Problems with one answer, from a file or from code, in the words of a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipes import tiny_models
from reward_loop.errors import ConfigError, DataError
from reward_loop.rinker.rendering import Message, get_renderer
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.data import dataset_builder
from reward_loop.rinker.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from reward_loop.rinker.rl.problems import ProblemsBuilder, RowEnv
from reward_loop.rinker.rl.train import train_rl

TOKENIZER = tiny_models.tokenizer()
RENDERER = get_renderer("chatml", TOKENIZER)


class WithTokenizer:
    """A client of which only the tokenizer is asked."""

    def get_tokenizer(self) -> Any:
        return TOKENIZER


class Sum(ProblemEnv):
    def get_question(self) -> str:
        return "6*7?"

    def check_answer(self, sample_str: str) -> bool:
        return "42" in sample_str

    def check_format(self, sample_str: str) -> bool:
        return sample_str.startswith("=")

    def get_reference_answer(self) -> str:
        return "=42"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("=42<|im_end|>", 1.0), ("42<|im_end|>", 0.9), ("=41<|im_end|>", 0.0), ("41<|im_end|>", -0.1), ("=42", 0.9)],
)
async def test_the_reward_is_for_the_answer_less_a_tenth_for_the_form(answer: str, reward: float) -> None:
    env = Sum(RENDERER, [Message(role="system", content="Be brief.")])
    prompt, stop = await env.initial_observation()
    assert TOKENIZER.decode(prompt.to_ints()).endswith("6*7?<|im_end|>\n<|im_start|>assistant\n")
    assert stop == RENDERER.get_stop_sequences()
    result = await env.step(TOKENIZER.encode(answer))
    assert result.reward == pytest.approx(reward)
    assert result.episode_done
    assert result.logs["reference"] == "=42"


async def test_a_group_is_the_same_problem_several_times() -> None:
    group = ProblemGroupBuilder(lambda: Sum(RENDERER), 3, "sums")
    assert len({id(env) for env in await group.make_envs()}) == 3
    assert group.logging_tags() == ("sums",)
    with pytest.raises(DataError, match="num_envs=0"):
        ProblemGroupBuilder(lambda: Sum(RENDERER), 0)


def problems(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def config(path: Path, **settings: Any) -> RLConfig:
    base = {"log_path": path, "model": {"base_model": "m"}, "batch_size": 2, "group_size": 3}
    return RLConfig.model_validate({**base, **settings})


async def test_rows_of_a_file_are_problems_in_an_order_of_the_seed(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "answer": n, "data_source": "counting"} for n in range(5)]
    data = {"problems": problems(tmp_path / "a.jsonl", *rows), "test_problems": problems(tmp_path / "b.jsonl", rows[0])}

    async def questions(seed: int) -> list[str]:
        train, _ = await ProblemsBuilder(config(tmp_path, data=data, seed=seed), RENDERER)()
        groups = [group for batch in range(len(train)) for group in train.get_batch(batch)]
        envs = [(await group.make_envs())[0] for group in groups]
        return [env.get_question() for env in envs if isinstance(env, RowEnv)]

    assert sorted(await questions(0)) == [f"{n}?" for n in range(5)]
    assert await questions(0) == await questions(0) != await questions(1)
    train, test = await ProblemsBuilder(config(tmp_path, data=data), RENDERER)()
    assert [len(train.get_batch(batch)) for batch in range(len(train))] == [2, 2, 1]
    assert test is not None
    [group] = test.get_batch(0)
    [env] = await group.make_envs()
    assert isinstance(env, RowEnv)
    assert env.reward_columns()["reward_model"] == {"ground_truth": "0"}
    assert env.reward_columns()["data_source"] == "counting"
    assert env.check_answer(" 0\n")
    assert not env.check_answer("00")


async def test_a_row_without_question_or_answer_is_refused(tmp_path: Path) -> None:
    data = {"problems": problems(tmp_path / "a.jsonl", {"question": "?", "answer": 1}, {"question": "?"})}
    with pytest.raises(DataError, match=r"row 2: needs the text 'question' and 'answer'; it has \['question'\]"):
        await ProblemsBuilder(config(tmp_path, data=data), RENDERER)()


BUILDERS = """
from tests.rinker.rl.copy_task import CopyBuilder, CopyDataset

def dataset_builder(batch_size, group_size, seed, batches=2):
    return CopyBuilder(CopyDataset(batches, batch_size, group_size, seed=seed), CopyDataset(1, 1, 1))

def rendered(renderer, tokenizer, group_size):
    assert renderer.get_stop_sequences() == [tokenizer.eos_token_id]
    return CopyBuilder(CopyDataset(1, 1, group_size))

def wrong(batch_size):
    return batch_size

def demanding(colour):
    return colour
"""


def built(tmp_path: Path, **data: Any) -> Any:
    path = tmp_path / "environments.py"
    path.write_text(BUILDERS)
    return dataset_builder(config(tmp_path, data={"builder": str(path), **data}), WithTokenizer())


async def test_a_builder_may_be_code_and_gets_what_it_takes(tmp_path: Path) -> None:
    train, test = await built(tmp_path, kwargs={"batches": 5})()
    assert (len(train), len(train.get_batch(0)), test is not None) == (5, 2, True)
    await built(tmp_path, name="rendered")()


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ({"name": "nobody"}, "has no function 'nobody'"),
        ({"name": "wrong"}, "returned a int; it must return an RLDatasetBuilder"),
        ({"name": "demanding"}, "needs colour; give it in data.kwargs"),
        ({"kwargs": {"size": 3}}, "takes no size, given in data.kwargs"),
    ],
)
def test_code_that_does_not_fit_is_refused(tmp_path: Path, data: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        built(tmp_path, **data)


def test_a_run_can_be_written_as_settings_alone(tmp_path: Path) -> None:
    model = str(tiny_models.judge(tmp_path / "model"))
    data = {"problems": problems(tmp_path / "a.jsonl", *({"question": f"{n}", "answer": "a"} for n in range(4)))}
    judge = tmp_path / "judge.py"
    judge.write_text("def compute_score(solution_str, ground_truth):\n    return float(ground_truth in solution_str)\n")
    rewards = {"reward_loop": {"custom_reward_function": {"path": str(judge)}}}
    settings: dict[str, Any] = {"model": {"base_model": model, "lora": {"rank": 4}}, "max_tokens": 4, "rewards": rewards}
    result = train_rl(config(tmp_path / "run", data={**data, "test_problems": data["problems"]}, **settings))
    assert result.steps == 2
    assert "test/pass_rate" in result.metrics
    assert result.metrics["env/problems/total_episodes"] == 6
