"""What every client of the training API can rely on, whichever library it is of and wherever the service runs.

Each check is a plain function of a `World`, and uses only what `tinker` and `reward_loop.rinker` have in common. Its name is what
it shows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.rinker.conformance.copy_digits import CopyDigits
from tests.rinker.conformance.sampling_checks import SAMPLING_CHECKS
from tests.rinker.conformance.world import World

Check = Callable[[World], None]


def curve(world: World, *, seed: int = 3, iterations: int = 3) -> list[float]:
    """Return the rewards of a short training, which seed and weights decide."""
    client = world.model(seed=1)
    return CopyDigits(batch=4, group=4, learning_rate=1e-2, seed=seed).train(world.tinker, client, iterations)


def the_same_seed_gives_the_same_curve(world: World) -> None:
    first = curve(world)
    assert curve(world) == first
    assert curve(world, seed=4) != first


def sampler_and_trainer_agree_on_logprobs(world: World) -> None:
    client = world.model()
    world.trained(client, steps=2)
    prompt = [1, 2, 3]
    sampler = client.save_weights_and_get_sampling_client().result()
    answers = sampler.sample(world.prompt(*prompt), 4, world.params(seed=1, temperature=0.7, top_p=0.9, max_tokens=6)).result()
    texts = [[*prompt, *answer.tokens] for answer in answers.sequences]
    for answer, trained in zip(answers.sequences, world.logprobs(client, world.supervised(texts)), strict=True):
        assert answer.logprobs == pytest.approx(trained[len(prompt) - 1 :], abs=1e-5)


def compute_logprobs_equals_forward(world: World) -> None:
    client = world.model()
    world.trained(client)
    sampler = client.save_weights_and_get_sampling_client().result()
    for text, trained in zip(world.texts(), world.logprobs(client), strict=True):
        first, *others = sampler.compute_logprobs(world.prompt(*text)).result()
        assert first is None
        assert others == pytest.approx(trained, abs=1e-5)


def what_continues_from_state_equals_what_was_not_interrupted(world: World) -> None:
    undisturbed, interrupted = world.model(), world.model()
    world.trained(undisturbed, steps=4)
    world.trained(interrupted, steps=2)
    path = interrupted.save_state("half-way").result().path
    continued = world.service.create_training_client_from_state_with_optimizer(path).result()
    world.trained(continued, steps=2)
    assert_close(world.logprobs(continued), world.logprobs(undisturbed), 1e-6)


def a_model_from_state_has_the_same_logprobs(world: World) -> None:
    client = world.model()
    world.trained(client)
    path = client.save_state("trained").result().path
    assert path.endswith("/weights/trained")
    restored = world.service.create_training_client_from_state_with_optimizer(path).result()
    assert world.logprobs(restored) == world.logprobs(client)


def a_model_from_state_without_its_optimizer_steps_as_a_new_one(world: World) -> None:
    client = world.model()
    world.trained(client, steps=2)
    path = client.save_state("weights-only").result().path
    fresh = world.service.create_training_client_from_state(path).result()
    assert world.logprobs(fresh) == world.logprobs(client)
    world.trained(fresh)
    world.trained(client)
    assert not close(world.logprobs(fresh), world.logprobs(client), 1e-4)


def a_custom_loss_equals_the_built_in_one(world: World) -> None:
    data = world.reinforced()
    built_in, custom = world.model(), world.model()

    def importance_sampling(given: list[Any], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        terms = [
            (lp - datum.loss_fn_inputs["logprobs"].to_torch()).exp() * datum.loss_fn_inputs["advantages"].to_torch()
            for datum, lp in zip(given, logprobs, strict=True)
        ]
        loss = -torch.cat(terms).sum()
        return loss, {"mine:sum": 7.0}

    expected = built_in.forward_backward(data, "importance_sampling")
    built_in.optim_step(world.adam())
    output = custom.forward_backward_custom(data, importance_sampling)
    custom.optim_step(world.adam())
    assert_close(world.logprobs(custom), world.logprobs(built_in), 1e-5)
    metrics = output.result().metrics
    assert metrics["loss:sum"] == pytest.approx(expected.result().metrics["loss:sum"], rel=1e-5)
    assert metrics["mine:sum"] == 7.0
    assert "surrogate_loss:sum" in metrics


def a_custom_loss_that_fails_fails_what_was_called_behind_it(world: World) -> None:
    client = world.model()

    def broken(_: list[Any], __: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        raise ZeroDivisionError("the loss has an error")

    custom = client.forward_backward_custom(world.supervised(), broken)
    behind = client.optim_step(world.adam())
    with pytest.raises(ZeroDivisionError, match="has an error"):
        custom.result()
    with pytest.raises(Exception, match=r"poisoned|custom loss"):
        behind.result()
    world.logprobs(world.model())  # another model goes on


def gradients_add_up_until_the_step(world: World) -> None:
    at_once, in_parts = world.model(), world.model()
    data = world.supervised()
    at_once.forward_backward(data, "cross_entropy")
    at_once.optim_step(world.adam())
    for part in (data[:1], data[1:4], data[4:]):
        in_parts.forward_backward(part, "cross_entropy")
    in_parts.forward(data, "cross_entropy")  # adds nothing
    in_parts.optim_step(world.adam())
    assert_close(world.logprobs(in_parts), world.logprobs(at_once), 1e-5)


def a_pass_in_chunks_equals_a_whole_one(world: World) -> None:
    whole, chunked = world.model(), world.model(world.chunked)
    outputs = [client.forward_backward(world.reinforced(), "ppo") for client in (whole, chunked)]
    for client in (whole, chunked):
        client.optim_step(world.adam())
    assert_close(world.logprobs(chunked), world.logprobs(whole), 1e-5)
    expected, got = (output.result() for output in outputs)
    assert_close(rows(got), rows(expected), 1e-6)
    assert got.metrics == pytest.approx(dict(expected.metrics), rel=1e-4, abs=1e-6)


def results_can_be_asked_for_in_any_order(world: World) -> None:
    client = world.model()
    before = client.forward(world.supervised(), "cross_entropy")
    passed = client.forward_backward(world.supervised(), "cross_entropy")
    stepped = client.optim_step(world.adam())
    after = client.forward(world.supervised(), "cross_entropy")
    last = after.result().metrics["loss:sum"]
    stepped.result()
    assert passed.result().metrics["loss:sum"] == pytest.approx(before.result().metrics["loss:sum"])
    assert last < before.result().metrics["loss:sum"]


def futures_can_be_awaited_and_given_to_the_standard_library(world: World) -> None:
    client = world.model()
    futures = [client.forward(world.supervised(), "cross_entropy") for _ in range(2)]

    async def awaited() -> float:
        first = await futures[0]
        second = await futures[1].result_async(timeout=60)
        assert first.metrics == second.metrics
        return (await futures[0].coroutine()).metrics["loss:sum"]  # type: ignore[no-any-return]

    done = concurrent.futures.wait([future.future() for future in futures], timeout=60).done
    assert asyncio.run(awaited()) == next(iter(done)).result().metrics["loss:sum"]


def an_unknown_loss_is_the_users_error_and_ends_nothing_else(world: World) -> None:
    client = world.model()
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        client.forward_backward(world.supervised(), "no_such_loss").result()
    assert failed.value.category == "user"
    world.trained(client)


def a_wrong_shape_is_the_users_error(world: World) -> None:
    client = world.model()
    short = world.tinker.Datum(model_input=world.prompt(1, 2, 3), loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0]})
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        client.forward_backward([short], "cross_entropy").result()
    assert failed.value.category == "user"


def a_missing_input_is_the_users_error(world: World) -> None:
    client = world.model()
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        client.forward_backward(world.supervised(), "ppo").result()
    assert failed.value.category == "user"
    assert "advantages" in str(failed.value) or "logprobs" in str(failed.value)


def a_token_out_of_the_vocabulary_is_the_users_error(world: World) -> None:
    client = world.model()
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        client.forward_backward(world.supervised([[1, 2, 999]]), "cross_entropy").result()
    assert failed.value.category == "user"
    sampler = client.save_weights_and_get_sampling_client().result()
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        sampler.sample(world.prompt(1, 999), 1, world.params()).result()
    assert failed.value.category == "user"


def a_checkpoint_that_is_not_there_is_the_users_error(world: World) -> None:
    with pytest.raises(world.tinker.RequestFailedError) as failed:
        world.service.create_training_client_from_state("tinker://nobody/weights/nothing").result()
    assert failed.value.category == "user"


def models_train_apart_from_each_other(world: World) -> None:
    one, other = world.model(), world.model()
    before = world.logprobs(other)
    world.trained(one)
    assert world.logprobs(other) == before


def info_names_the_base_model_and_the_rank(world: World) -> None:
    info = world.model().get_info()
    assert info.model_data.model_name == world.base_model
    assert (info.is_lora, info.lora_rank) == (True, 4)


def rows(output: Any) -> list[list[float]]:
    """Return the log-probabilities of a pass."""
    return [row["logprobs"].tolist() for row in output.loss_fn_outputs]


def close(got: list[list[float]], expected: list[list[float]], tolerance: float) -> bool:
    """Say whether rows of numbers are the same but for rounding."""
    return all(one == pytest.approx(other, abs=tolerance) for one, other in zip(got, expected, strict=True))


def assert_close(got: list[list[float]], expected: list[list[float]], tolerance: float) -> None:
    """Assert that rows of numbers are the same but for rounding."""
    for one, other in zip(got, expected, strict=True):
        assert one == pytest.approx(other, abs=tolerance)


CHECKS: list[Check] = [
    the_same_seed_gives_the_same_curve,
    sampler_and_trainer_agree_on_logprobs,
    compute_logprobs_equals_forward,
    what_continues_from_state_equals_what_was_not_interrupted,
    a_model_from_state_has_the_same_logprobs,
    a_model_from_state_without_its_optimizer_steps_as_a_new_one,
    a_custom_loss_equals_the_built_in_one,
    a_custom_loss_that_fails_fails_what_was_called_behind_it,
    gradients_add_up_until_the_step,
    a_pass_in_chunks_equals_a_whole_one,
    results_can_be_asked_for_in_any_order,
    futures_can_be_awaited_and_given_to_the_standard_library,
    an_unknown_loss_is_the_users_error_and_ends_nothing_else,
    a_wrong_shape_is_the_users_error,
    a_missing_input_is_the_users_error,
    a_token_out_of_the_vocabulary_is_the_users_error,
    a_checkpoint_that_is_not_there_is_the_users_error,
    models_train_apart_from_each_other,
    info_names_the_base_model_and_the_rank,
    *SAMPLING_CHECKS,
]
