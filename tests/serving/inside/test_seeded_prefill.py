"""The guard against the crash of seeded prompts that are computed in several steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from packaging.version import Version

from reward_loop.serving.inside.seeded_prefill import guard, has_fault


class Runner:
    """A model runner as vLLM's: samples with every row's generator, then takes back what unfinished rows have drawn."""

    def __init__(self, *unfinished: bool) -> None:
        generators = {row: torch.Generator().manual_seed(row) for row in range(len(unfinished))}
        self.input_batch = SimpleNamespace(generators=generators)
        self.discard_request_mask = SimpleNamespace(np=np.array(unfinished))

    def _sample(self, *, rows: int) -> list[float]:
        return [torch.rand((), generator=self.input_batch.generators[row]).item() for row in range(rows)]

    def _bookkeeping_sync(self) -> str:
        for row in np.nonzero(self.discard_request_mask.np)[0]:
            if generator := self.input_batch.generators.get(int(row)):
                generator.set_offset(generator.get_offset() - 4)  # raises: a generator of the CPU has no offset
        return "kept"


def unguarded() -> Any:
    """Return a class of such runners of its own."""
    return type("Own", (Runner,), {})


def guarded() -> Any:
    """Return a class of such runners of its own, guarded."""
    runner = unguarded()
    guard(runner)
    return runner


def test_the_fault_is_there_without_the_guard() -> None:
    with pytest.raises(RuntimeError, match="does not use offset"):
        unguarded()(True)._bookkeeping_sync()


def test_rows_with_an_unfinished_prompt_give_their_random_numbers_back() -> None:
    runner = guarded()(True, False)
    first = runner._sample(rows=2)
    assert runner._bookkeeping_sync() == "kept"
    again = runner._sample(rows=2)
    assert again[0] == first[0]
    assert again[1] != first[1]
    assert set(runner.input_batch.generators) == {0, 1}


def test_guarding_twice_changes_nothing() -> None:
    runner = guarded()
    once = runner._sample
    guard(runner)
    assert runner._sample is once


@pytest.mark.parametrize(("version", "faulty"), [("0.32.0", True), ("0.33.1", True), ("0.31.0", False), ("0.34.0", False)])
def test_only_releases_known_to_crash_are_guarded(version: str, faulty: bool) -> None:
    assert has_fault(Version(version)) is faulty
    assert not has_fault(None)
