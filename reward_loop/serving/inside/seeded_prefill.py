"""The guard against a crash: on the CPU, a request with a seed whose prompt is computed in several steps ends vLLM's engine.

After each step vLLM takes back the random numbers that rows with an unfinished prompt have drawn, by moving their generators
four back; generators of the CPU have no such position and raise "CPU Generator does not use offset". The guard takes the numbers
back by restoring the generators' states, and hides these rows from vLLM's own attempt.

Invariant: a vLLM that is not known to have this fault is left as it is.
"""

from __future__ import annotations

from typing import Any

from packaging.version import Version

from reward_loop.serving.inside.versions import installed_vllm

_FAULTY = frozenset({(0, 32), (0, 33)})
"""Releases of vLLM known to crash: 0.32 by trial, 0.33 by its source."""


def has_fault(vllm: Version | None) -> bool:
    """Say whether this release is known to crash."""
    return vllm is not None and vllm.release[:2] in _FAULTY


def guard_if_needed() -> None:
    """Guard the CPU's model runner if this vLLM runs on the CPU and is known to crash; may be called again."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and has_fault(installed_vllm()):
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner

        guard(CPUModelRunner)


def guard(runner: Any) -> None:
    """Wrap the two methods of this class of model runners between which generators must be taken back."""
    if getattr(runner, "_seeded_prefill_guarded", False):
        return
    sample, bookkeep = runner._sample, runner._bookkeeping_sync

    def _sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = {row: generator.get_state() for row, generator in _unfinished(self).items()}
        sampled = sample(self, *args, **kwargs)
        for row, state in before.items():
            self.input_batch.generators[row].set_state(state)
        return sampled

    def _bookkeeping_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators, hidden = self.input_batch.generators, _unfinished(self)
        for row in hidden:
            del generators[row]
        try:
            return bookkeep(self, *args, **kwargs)
        finally:
            generators.update(hidden)

    runner._sample, runner._bookkeeping_sync, runner._seeded_prefill_guarded = _sample, _bookkeeping_sync, True


def _unfinished(runner: Any) -> dict[int, Any]:
    """Return the generators of the rows whose prompt is not finished with this step."""
    discarded = runner.discard_request_mask.np
    return {row: generator for row, generator in runner.input_batch.generators.items() if discarded[row]}
