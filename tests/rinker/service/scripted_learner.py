"""A learner that does what a test says: what can't be made to happen on demand with a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import torch

from reward_loop.rinker.learner import LossConfig, Weights
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse


class ScriptedLearner:
    """Its one weight counts the steps. `errors` are raised by the next calls; `gate`, once cleared, holds them back.

    What is held back of a step and of a load is the answer: as with real learners, cancelling the call does not undo it.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self.steps = 0
        self.passes: list[str] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.held = asyncio.Event()
        self.closed = False

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None = None, *, forward_only: bool = False
    ) -> ForwardBackwardOutput:
        await self._pass_gate()
        self._fail()
        self.passes.append(loss_fn)
        return ForwardBackwardOutput("scripted", [{} for _ in data], {"loss:sum": float(self.steps)})

    async def optim_step(self, params: AdamParams) -> OptimStepResponse:
        self._fail()
        self.steps += 1
        await self._pass_gate()
        return OptimStepResponse({"step:max": float(self.steps)})

    async def save(self, directory: Path, *, optimizer: bool) -> None:
        await asyncio.to_thread(directory.mkdir)
        await asyncio.to_thread((directory / "steps").write_text, str(self.steps))

    async def load(self, directory: Path, *, optimizer: bool) -> None:
        self._fail()
        self.steps = int(await asyncio.to_thread((directory / "steps").read_text))
        await self._pass_gate()

    async def weights(self) -> Weights:
        return {"steps": torch.tensor([float(self.steps)])}

    async def close(self) -> None:
        self.closed = True
        await self._pass_gate()
        self._fail()

    async def _pass_gate(self) -> None:
        if not self.gate.is_set():
            self.held.set()
        await self.gate.wait()

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
