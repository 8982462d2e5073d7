"""A bad input of a batch fails alone, whatever the server says of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RequestRejected, RewardServerError, ServerUnavailable
from reward_loop.scoring.isolate import Refusal, isolated

BAD = -1


class Server:
    """Refuses batches with a bad input: names all of them, the first, or none."""

    def __init__(self, names: int) -> None:
        self.names = names
        self.asked: list[list[int]] = []

    async def __call__(self, inputs: Sequence[int]) -> Sequence[int] | Refusal:
        self.asked.append(list(inputs))
        bad = [at for at, each in enumerate(inputs) if each == BAD]
        if not bad:
            return [each * 10 for each in inputs]
        named: dict[int, RewardServerError] = {at: RequestRejected(f"input {at} is bad", 400) for at in bad[: self.names]}
        return Refusal(RequestRejected("an input is bad", 400), named)


@pytest.mark.parametrize("names", [0, 1, 99])
@given(inputs=st.lists(st.sampled_from([BAD, 1, 2, 3]), min_size=1, max_size=20))
async def test_every_good_input_gets_its_result_and_every_bad_one_its_error(names: int, inputs: list[int]) -> None:
    results = await isolated(inputs, Server(names))
    assert len(results) == len(inputs)
    for one, result in zip(inputs, results, strict=True):
        assert isinstance(result, RequestRejected) if one == BAD else result == one * 10


async def test_inputs_that_are_named_cost_one_more_request() -> None:
    server = Server(names=99)
    await isolated([1, BAD, 2, BAD, 3], server)
    assert server.asked == [[1, BAD, 2, BAD, 3], [1, 2, 3]]


async def test_inputs_that_are_all_named_bad_cost_none() -> None:
    server = Server(names=99)
    await isolated([BAD, BAD], server)
    assert len(server.asked) == 1


async def test_one_that_is_not_named_is_found_by_halving() -> None:
    server = Server(names=0)
    await isolated([*range(63), BAD], server)
    assert len(server.asked) == 1 + 2 * 6
    assert server.asked[-1] == [BAD]


@pytest.mark.parametrize("index", [-1, 2, 1000])
async def test_a_server_that_names_an_input_that_was_not_sent_is_not_believed(index: int) -> None:
    async def send(inputs: Sequence[int]) -> Sequence[int] | Refusal:
        return Refusal(RequestRejected("no", 400), {index: RequestRejected("that one", 400)}) if BAD in inputs else list(inputs)

    first, second = await isolated([7, BAD], send)
    assert first == 7
    assert isinstance(second, RequestRejected)


async def test_a_failure_that_is_about_no_input_does_not_cost_what_was_scored() -> None:
    async def send(inputs: Sequence[int]) -> Sequence[int] | Refusal:
        if BAD in inputs and len(inputs) > 1:
            return Refusal(RequestRejected("no", 400))
        if BAD in inputs:
            raise ServerUnavailable("gone")
        return list(inputs)

    first, second = await isolated([7, BAD], send)
    assert first == 7
    assert isinstance(second, ServerUnavailable)
