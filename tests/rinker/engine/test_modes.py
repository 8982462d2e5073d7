"""What is switched for the whole process, while several models train side by side in threads."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import torch

from reward_loop.rinker.engine.modes import OwnRandomness, deterministic

CPU = torch.device("cpu")


def test_the_switch_stays_on_until_the_last_has_left_and_is_put_back_then() -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(deterministic(True, CPU))
    second.enter_context(deterministic(True, CPU))
    first.close()
    assert torch.are_deterministic_algorithms_enabled()
    second.close()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_switch_that_only_warns_is_put_back_as_it_was() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with deterministic(True, CPU), deterministic(True, CPU):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_nobody_elses_draws_come_between_ones_own() -> None:
    with OwnRandomness(1, CPU).drawn():
        wanted = torch.rand(3)
    before = torch.get_rng_state()
    mine, others, inside, drawn = OwnRandomness(1, CPU), OwnRandomness(2, CPU), threading.Event(), threading.Event()

    def draw() -> None:
        with others.drawn():
            inside.set()
            drawn.wait(10)

    other = threading.Thread(target=draw)
    with mine.drawn():
        other.start()
        inside.wait(0.2)  # in vain, as it should be
        found = torch.rand(3)
    drawn.set()
    other.join()
    assert torch.equal(found, wanted)
    assert torch.equal(torch.get_rng_state(), before)
