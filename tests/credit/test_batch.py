"""Credit for what the reward loop wrote."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from reward_loop.credit import SCALERL, VERL_GRPO, Normalization, RewardModelCreditAssigner, group_advantages
from reward_loop.credit.batch import batch_advantages, batch_rollouts, token_advantages
from reward_loop.data import DataProto
from reward_loop.errors import DataError, InvalidReward, Unscorable
from reward_loop.loop import RewardLoopManager
from tests.fakes import config_of, text_batch, token_batch

R = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0]


def scored(rewards: list[list[float]], mask: list[float] | None = None, **columns: Any) -> DataProto:
    tensors = {"rm_scores": torch.tensor(rewards), "reward_mask": torch.tensor(mask or [1.0] * len(rewards))}
    return DataProto.from_dict(tensors, {"uid": ["g"] * len(rewards), **columns})


def test_rewards_are_centred_by_their_group() -> None:
    batch = scored([[0.0, reward] for reward in R], uid=[0, 0, 0, 1, 1, 1])
    advantages = batch_advantages(batch)
    assert advantages.dtype == torch.float32
    assert advantages.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0.5, 0.0, -0.5])


@pytest.mark.parametrize("way", [VERL_GRPO, SCALERL])
def test_they_are_scaled_where_that_is_asked_for(way: Normalization) -> None:
    groups = [0, 0, 1, 1, 0, 1]
    expected = group_advantages(R, groups, way)
    assert batch_advantages(scored([[reward] for reward in R], uid=groups), way).tolist() == pytest.approx(expected)


def test_a_masked_sample_has_no_reward_whatever_its_score_says() -> None:
    for stand_in in (0.0, 100.0, float("nan")):
        batch = scored([[1.0], [stand_in], [0.0]], [1, 0, 1])
        assert batch_advantages(batch).tolist() == [0.5, 0.0, -0.5]


def test_rewards_per_token_count_by_their_sum() -> None:
    assert batch_advantages(scored([[0.25, 0.75], [0.5, 0.0]])).tolist() == [0.25, -0.25]


def test_a_batch_of_verl_is_taken_by_its_attributes() -> None:
    ours = scored([[1.0], [0.0]])
    verls = SimpleNamespace(batch=ours.batch, non_tensor_batch=ours.non_tensor_batch, meta_info={})
    assert batch_advantages(verls).tolist() == [0.5, -0.5]


def test_every_token_of_a_response_gets_its_advantage_and_padding_none() -> None:
    batch = DataProto.from_dict({"responses": torch.zeros(3, 4, dtype=torch.int64), "response_len": torch.tensor([4, 2, 0])})
    expected = [[1.0, 1.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0], [0.0] * 4]
    assert token_advantages(batch, torch.tensor([1.0, -2.0, 5.0])).tolist() == expected
    with pytest.raises(DataError, match=r"advantages of shape \[2\] need one for each of 3 samples"):
        token_advantages(batch, torch.zeros(2))


def test_any_assigner_reads_a_scored_batch_as_rollouts_of_one_step() -> None:
    batch = scored([[0.2], [0.8], [0.0]], [1, 1, 0], acc=[1.0, 0.0, None], rm_version=[0, 0, None])
    rollouts = batch_rollouts(batch, reward_column="acc")
    assert [one.meta for one in rollouts[1:]] == [
        {"rm_score": pytest.approx(0.8), "group_id": "g", "rm_score_version": 0},
        {"rm_score": None, "group_id": "g"},
    ]
    weights = RewardModelCreditAssigner("add", group_size=3).compute(rollouts)
    assert weights == pytest.approx({("0", 0): 0.2, ("1", 0): -0.2, ("2", 0): 0.0}, abs=1e-6)


def test_the_batch_and_its_rollouts_agree() -> None:
    batch = scored([[reward] for reward in R], [1, 1, 0, 1, 1, 1], uid=[0, 0, 0, 1, 1, 1])
    weights = RewardModelCreditAssigner("replace").compute(batch_rollouts(batch))
    assert list(weights.values()) == pytest.approx(batch_advantages(batch).tolist())


def reward_of(solution_str: str) -> float:
    if solution_str == "?":
        raise Unscorable("no answer")
    return float(len(solution_str))


def test_what_the_loop_wrote_is_all_that_is_needed(tokenizer_path: str) -> None:
    config = config_of(reward_model={"num_workers": 1}, actor_rollout_ref={"model": {"path": tokenizer_path}})
    with RewardLoopManager(config, compute_score=reward_of) as manager:
        for batch in (token_batch(["a", "bbb", "?"], uid=["g"] * 3), text_batch(["a", "bbb", "?"], uid=["g"] * 3)):
            assert batch_advantages(batch.union(manager.compute_rm_score(batch))).tolist() == [-1.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["rm_scores", "reward_mask"])
def test_without_scores_or_their_mask_there_is_no_credit(name: str) -> None:
    batch = scored([[1.0], [0.0]])
    batch.pop([name])
    with pytest.raises(DataError, match=r"needs 'rm_scores' and 'reward_mask'.*batch.union\(manager.compute_rm_score"):
        batch_advantages(batch)


def test_without_groups_only_what_needs_none_works() -> None:
    batch = scored([[1.0], [0.0]])
    batch.pop([], ["uid"])
    assert batch_advantages(batch, Normalization("batch")).tolist() == [0.5, -0.5]
    with pytest.raises(DataError, match="the batch has no column 'uid'"):
        batch_advantages(batch)


@pytest.mark.parametrize("group", [None, ["x"]])
def test_a_sample_without_a_group_is_named(group: object) -> None:
    with pytest.raises(DataError, match=r"column 'uid' holds .* in row 1"):
        batch_advantages(scored([[1.0], [0.0]], uid=["g", group]))


def test_a_group_that_is_not_whole_is_an_error_where_its_size_is_known() -> None:
    assert batch_advantages(scored([[1.0], [0.0]]), group_size=2).tolist() == [0.5, -0.5]
    with pytest.raises(DataError, match="group 'g' has 2 samples, not group_size=3"):
        batch_advantages(scored([[1.0], [0.0]]), group_size=3)


def test_a_score_that_is_no_number_names_its_row() -> None:
    with pytest.raises(InvalidReward, match="sample 1: rm_scores: a reward must be a finite number; got nan"):
        batch_advantages(scored([[1.0], [float("nan")]]))
