"""Episodes as training data: which number belongs to which token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.training_sequence import training_sequences
from reward_loop.rinker.rl.types import Trajectory, Transition
from reward_loop.rinker.types import ModelInput


def step(seen: list[int], said: list[int], logprobs: list[float] | None = None) -> Transition:
    known = [-float(token) for token in said] if logprobs is None else logprobs
    return Transition(ModelInput.from_ints(seen), TokensWithLogprobs(said, known), 0.0, episode_done=False)


def episode(*steps: Transition) -> Trajectory:
    return Trajectory(steps, ModelInput.empty())


def test_one_turn_is_one_datum_aligned_with_its_targets() -> None:
    [one] = training_sequences(episode(step([1, 2, 3], [4, 5])), 0.5)
    datum = one.datum()
    assert datum.model_input.to_ints() == [1, 2, 3, 4]
    inputs = {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()}
    assert inputs == {
        "target_tokens": [2, 3, 4, 5],
        "logprobs": [0.0, 0.0, -4.0, -5.0],
        "advantages": [0.0, 0.0, 0.5, 0.5],
    }
    assert [tensor.dtype for tensor in datum.loss_fn_inputs.values()] == ["int64", "float32", "float32"]


def test_only_gspo_is_told_which_tokens_are_the_policys() -> None:
    [one] = training_sequences(episode(step([1, 2], [3])), 1.0)
    assert one.datum("gspo").loss_fn_inputs["sequence_ratio_mask"].tolist() == [0.0, 1.0]


def test_turns_are_one_datum_while_each_observation_extends_the_last() -> None:
    turns = episode(step([1], [2]), step([1, 2, 3], [4]), step([9], [8, 7]))
    first, second = training_sequences(turns, 1.0)
    assert (first.tokens, first.mask.tolist(), first.logprobs.tolist()) == ([1, 2, 3, 4], [1, 0, 1], [-2.0, 0.0, -4.0])
    assert (second.tokens, second.mask.tolist(), second.action_tokens) == ([9, 8, 7], [1, 1], 2)


def test_what_trains_nothing_is_left_out() -> None:
    assert training_sequences(episode(step([1, 2], []))) == []
    assert training_sequences(episode(step([], [5]))) == []
    assert training_sequences(episode()) == []


def test_a_factor_and_a_penalty_reach_only_what_the_policy_said() -> None:
    [one] = training_sequences(episode(step([1, 2], [3])), 2.0)
    assert one.weighted(0.5).advantages.tolist() == [0.0, 1.0]
    assert one.plus(one.advantages + 1.0).advantages.tolist() == [0.0, 5.0]


def test_every_action_token_needs_its_log_probability() -> None:
    with pytest.raises(DataError, match="an action of 2 tokens has 1 log-probabilities"):
        training_sequences(episode(step([1], [2, 3], [-0.1])))
    with pytest.raises(DataError, match="no log-probabilities"):
        training_sequences(episode(Transition(ModelInput.from_ints([1]), TokensWithLogprobs([2]), 0.0, episode_done=True)))


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 3), min_size=1, max_size=3)), min_size=1, max_size=5))
def test_every_action_token_is_in_exactly_one_sequence(turns: list[tuple[bool, list[int]]]) -> None:
    seen, steps = [0], list[Transition]()
    for goes_on, said in turns:
        seen = [*seen, 1] if goes_on else [5, 5]
        steps.append(step(seen, said))
        seen = [*seen, *said]
    sequences = training_sequences(episode(*steps), 1.0)
    assert sum(sequence.action_tokens for sequence in sequences) == sum(len(said) for _, said in turns)
    for sequence in sequences:
        assert len(sequence.logprobs) == len(sequence.advantages) == len(sequence.mask) == len(sequence.tokens) - 1
        assert ((sequence.advantages != 0) == (sequence.mask > 0)).all()
