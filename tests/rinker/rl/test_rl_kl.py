"""KL: the reference numbers, closeness to the exact divergence, and the two penalties."""

from __future__ import annotations

import numpy as np
import pytest

from reward_loop.errors import DataError
from reward_loop.rinker.rl.advantages import compute_advantages
from reward_loop.rinker.rl.kl import (
    differences,
    discounted_future_sum,
    kl_of_episode,
    kl_sample_train,
    kl_v1,
    kl_v2,
    shaped_reward,
    with_token_penalty,
)
from reward_loop.rinker.rl.training_sequence import TrainingSequence

LP = np.array([-1.0, -2.0, -0.5])
Q = np.array([-1.5, -1.5, -0.5])


def sequence(logprobs: np.ndarray, mask: list[float] | None = None) -> TrainingSequence:
    drawn = np.ones(len(logprobs)) if mask is None else np.array(mask)
    return TrainingSequence(list(range(len(logprobs) + 1)), logprobs, np.zeros(len(logprobs)), drawn)


def test_the_reference_vector() -> None:
    d = Q - LP
    assert kl_v1(d) == pytest.approx(0.0, abs=1e-6)
    assert kl_v2(d) == pytest.approx(0.083333, abs=1e-6)


def test_the_diagnosis_counts_what_the_policy_drew() -> None:
    padded = sequence(np.concatenate([[0.0], Q]), [0, 1, 1, 1])
    metrics = kl_sample_train([padded], [np.concatenate([[-9.0], LP])])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["optim/kl_sample_train_v2"] == pytest.approx(0.083333, abs=1e-6)
    assert metrics["optim/entropy"] == pytest.approx(3.5 / 3)
    assert kl_sample_train([], []) == {"optim/kl_sample_train_v1": 0.0, "optim/kl_sample_train_v2": 0.0, "optim/entropy": 0.0}


def test_v1_is_close_to_the_exact_divergence_and_v2_is_not() -> None:
    random = np.random.default_rng(0)
    p, q = np.log(random.dirichlet([0.5] * 5)), np.log(random.dirichlet([0.5] * 5))
    exact = float((np.exp(q) * (q - p)).sum())
    drawn = random.choice(5, size=200_000, p=np.exp(q))
    d = (q - p)[drawn]
    assert kl_v1(d) == pytest.approx(exact, rel=0.02)
    assert abs(kl_v2(d) - exact) > 0.1 * exact


def test_the_reward_is_shaped_before_it_is_centred() -> None:
    episodes = [[sequence(np.array([-1.0, -1.0]))], [sequence(np.array([-1.0, -1.0]))]]
    references = [[np.array([-1.5, -2.0])], [np.array([-1.0, -1.0])]]
    kls = [kl_of_episode(one, reference) for one, reference in zip(episodes, references, strict=True)]
    assert kls == [1.5, 0.0]
    shaped = [shaped_reward(reward, kl, 0.1) for reward, kl in zip([1.0, 0.0], kls, strict=True)]
    assert shaped == [pytest.approx(0.85), 0.0]
    assert compute_advantages([shaped])[0] == pytest.approx([0.425, -0.425])
    assert shaped_reward(None, 3.0, 0.1) is None


def test_the_tokens_penalty_is_centred_over_the_batch_and_leaves_prompts_alone() -> None:
    one = sequence(np.array([0.0, -1.0, -1.0]), [0, 1, 1])
    [shaped] = with_token_penalty([one], [np.array([7.0, -1.5, -1.0])], coef=2.0)
    assert shaped.advantages.tolist() == [0.0, 2.0 * (0.25 - 0.5), 2.0 * 0.25]
    [discounted] = with_token_penalty([one], [np.array([7.0, -1.5, -1.0])], coef=2.0, discount=0.5)
    assert discounted.advantages.tolist() == [0.0, -0.5 + 0.25, 0.5]


def test_a_discounted_sum_of_what_comes() -> None:
    assert discounted_future_sum(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]


def test_log_probabilities_of_another_length_are_refused() -> None:
    with pytest.raises(DataError, match="2 log-probabilities for a sequence of 3 targets"):
        differences([sequence(Q)], [np.zeros(2)])
