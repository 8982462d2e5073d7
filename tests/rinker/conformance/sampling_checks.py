"""What every client can rely on when it samples; see `checks`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rinker.conformance.world import World


def a_snapshot_stays_as_it_was_while_training_goes_on(world: World) -> None:
    client = world.model()
    world.trained(client)
    sampler = client.save_weights_and_get_sampling_client().result()
    before = sampler.compute_logprobs(world.prompt(1, 2, 3, 4)).result()
    world.trained(client, steps=2)
    assert sampler.compute_logprobs(world.prompt(1, 2, 3, 4)).result() == before
    newer = client.save_weights_and_get_sampling_client().result()
    assert newer.compute_logprobs(world.prompt(1, 2, 3, 4)).result()[1:] != pytest.approx(before[1:], abs=1e-3)


def saved_sampler_weights_are_the_models(world: World) -> None:
    client = world.model()
    world.trained(client)
    path = client.save_weights_for_sampler("to-sample").result().path
    assert path.endswith("/sampler_weights/to-sample")
    direct = client.save_weights_and_get_sampling_client().result()
    saved = world.service.create_sampling_client(model_path=path).result()
    prompt = world.prompt(5, 4, 3)
    assert saved.get_base_model() == world.base_model
    expected = direct.compute_logprobs(prompt).result()
    assert saved.compute_logprobs(prompt).result()[1:] == pytest.approx(expected[1:], abs=1e-5)


def adapters_that_learnt_nothing_leave_the_base_model_as_it_is(world: World) -> None:
    base = world.service.create_sampling_client(base_model=world.base_model).result()
    adapted = world.model().save_weights_and_get_sampling_client().result()
    prompt = world.prompt(*range(8))
    expected = base.compute_logprobs(prompt).result()
    assert adapted.compute_logprobs(prompt).result()[1:] == pytest.approx(expected[1:], abs=1e-5)


def greedy_sampling_takes_the_likeliest_token(world: World) -> None:
    sampler = world.service.create_sampling_client(base_model=world.base_model).result()
    prompt = [1, 2, 3]
    [answer] = (
        sampler.sample(world.prompt(*prompt), 1, world.params(temperature=0.0, max_tokens=3), False, 0, 2).result().sequences
    )
    assert answer.stop_reason == "length"
    for token, logprob, top in zip(answer.tokens, answer.logprobs, answer.topk_logprobs, strict=True):
        assert top[0][0] == token
        assert top[0][1] == pytest.approx(logprob, abs=1e-5)
        assert top[1][1] <= top[0][1]


def the_stop_token_is_the_last_of_the_answer(world: World) -> None:
    sampler = world.service.create_sampling_client(base_model=world.base_model).result()
    free = sampler.sample(world.prompt(1, 2), 1, world.params(seed=5, max_tokens=12)).result().sequences[0]
    stop = free.tokens[3]
    end = free.tokens.index(stop) + 1
    ended = sampler.sample(world.prompt(1, 2), 1, world.params(seed=5, max_tokens=12, stop=[stop])).result().sequences[0]
    assert (ended.tokens, ended.stop_reason) == (free.tokens[:end], "stop")
    assert ended.logprobs == pytest.approx(free.logprobs[:end], abs=1e-5)


def a_seed_decides_whatever_else_is_sampled(world: World) -> None:
    sampler = world.service.create_sampling_client(base_model=world.base_model).result()
    alone = sampler.sample(world.prompt(3, 1), 3, world.params(seed=11)).result()
    crowd = [sampler.sample(world.prompt(*range(1, 2 + n)), 2, world.params(max_tokens=3 + n)) for n in range(6)]
    together = sampler.sample(world.prompt(3, 1), 3, world.params(seed=11)).result()
    assert [answer.tokens for answer in together.sequences] == [answer.tokens for answer in alone.sequences]
    assert len({tuple(answer.tokens) for answer in alone.sequences}) > 1
    for future in crowd:
        assert len(future.result().sequences) == 2


SAMPLING_CHECKS: list[Callable[[World], None]] = [
    a_snapshot_stays_as_it_was_while_training_goes_on,
    saved_sampler_weights_are_the_models,
    adapters_that_learnt_nothing_leave_the_base_model_as_it_is,
    greedy_sampling_takes_the_likeliest_token,
    the_stop_token_is_the_last_of_the_answer,
    a_seed_decides_whatever_else_is_sampled,
]
