"""One model in training: passes, steps, weights. Plain calls, one at a time, without asyncio.

Invariants: data are checked before anything happens; a call that is refused has changed nothing; losses are sums, so that calls
may be cut as one likes; no weight ever changes but by a step with finite gradients, or a load.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.adam import Adam, check_params, shaped_like
from reward_loop.rinker.engine.checkpoint import Checkpoint, check_fits, read_checkpoint, write_checkpoint
from reward_loop.rinker.engine.forward import ScoreForward, TokenForward
from reward_loop.rinker.engine.gradients import Gradients
from reward_loop.rinker.engine.identity import model_digest
from reward_loop.rinker.engine.loading import limits_of, load_model, load_tokenizer
from reward_loop.rinker.engine.modes import OwnRandomness, deterministic
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.engine.work import checked_work, done
from reward_loop.rinker.learner import LossConfig, Weights
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse
from reward_loop.sync.lora import merged_state_dict
from reward_loop.sync.materialize import full_tensors
from reward_loop.training.master_weights import MasterWeights
from reward_loop.training.training_modes import trained_parameters


class Engine:
    """Trains the model of a spec; `ranks` are those that train it together, by default this process alone."""

    def __init__(self, spec: ModelSpec, settings: EngineSettings | None = None, ranks: Ranks | None = None) -> None:
        self.spec, self.settings, self._ranks = spec, settings or EngineSettings(), ranks or Ranks()
        self.model = load_model(spec, self.settings)
        self.device = next(self.model.parameters()).device
        self.limits = limits_of(self.model, spec.kind, self.settings)
        self._digest = model_digest(self.model)
        self._forward = self._ranks.wrap(self._new_forward())
        self._weights = MasterWeights(trained_parameters(self.model))
        self._gradients = Gradients(self._weights, self._ranks)
        self._adam = Adam(self._weights.masters)
        self._randomness = OwnRandomness(self.settings.seed, self.device)
        self.step = 0
        """Optimiser steps that the weights have behind them."""

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None = None, *, forward_only: bool = False
    ) -> ForwardBackwardOutput:
        """Add the gradients of the summed loss to those that are there; `forward_only` adds none. Raises RequestFailedError."""
        work = checked_work(self.spec.kind, self.limits, data, loss_fn, config, forward_only=forward_only)
        with ExitStack() as stack:
            stack.enter_context(deterministic(self.settings.deterministic, self.device))
            if forward_only:
                self.model.eval()
                stack.callback(self.model.train)
                stack.enter_context(torch.no_grad())
            else:
                stack.enter_context(self._gradients.added())
                if self.settings.dropout:
                    stack.enter_context(self._randomness.drawn())
            backward = None if forward_only else self._backward
            return done(work, self._forward, self.device, self._ranks, self.settings.micro_batch_tokens, backward)

    def optim_step(self, params: AdamParams) -> OptimStepResponse:
        """Step with the gradients that are there, and drop them. Raises RequestFailedError."""
        check_params(params)
        if self._gradients.empty:
            raise RequestFailedError("there are no gradients to step with; call forward_backward first", category="user")
        try:
            with deterministic(self.settings.deterministic, self.device):
                norm = self._gradients.clip(params.grad_clip_norm)
                if norm - norm != 0.0:
                    raise RequestFailedError(
                        f"the norm of all gradients together is {norm}: they were dropped, and no weight was changed. Use "
                        "smaller advantages or weights",
                        category="server",
                    )
                self._adam.step(params)
                self._weights.hand_back()
        finally:  # whatever goes wrong: they are clipped, and those of several ranks summed up, so none may be added to them
            self._gradients.drop()
        self.step += 1
        return OptimStepResponse({"step": float(self.step), "lr": params.learning_rate, "grad_norm": norm})

    @torch.no_grad()
    def weights(self) -> Weights:
        """Return a copy of the whole model on the CPU, adapters merged in, under the names of its Hugging Face class.

        What is trained stays as it is. Ranks that do not write get nothing.
        """
        state = self.model.state_dict() if self.spec.lora is None else merged_state_dict(self.model)
        whole = full_tensors(state, rank0_only=True)
        return {name: value.detach().to("cpu", copy=True) for name, value in whole.items()}

    def save(self, directory: Path, *, optimizer: bool) -> None:
        """Write a checkpoint: all of it or nothing. Raises RequestFailedError where it can't be written."""
        weights = full_tensors(self._weights.state(), rank0_only=True)
        memory = full_tensors(self._adam.state(), rank0_only=True) if optimizer else None
        if self._ranks.writes:
            found = Checkpoint(
                self.spec, self._digest, self.step, self.settings.renderer, weights, self._randomness.state, memory
            )
            write_checkpoint(directory, found, self.model, self._tokenizer)
        self._ranks.most(0.0)  # the others go on once the files are there

    def load(self, directory: Path, *, optimizer: bool) -> None:
        """Continue from a checkpoint; without the optimiser's state this begins anew. Gradients are dropped.

        Raises RequestFailedError, and has changed nothing then.
        """
        found = read_checkpoint(directory)
        check_fits(directory, found, self.spec, self._digest, optimizer=optimizer)
        masters = self._weights.masters
        self._weights.load({name: shaped_like(found.weights[name], master) for name, master in masters.items()})
        self._adam.load(found.optimizer or {} if optimizer else {})
        self._randomness.load(found.random)
        self._gradients.drop()
        self.step = found.step

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.spec.base_model, trust_remote_code=self.settings.trust_remote_code)

    def _new_forward(self) -> nn.Module:
        autocast = self.settings.autocast == "bfloat16"
        if self.spec.kind == "seq_cls":
            return ScoreForward(self.model, autocast=autocast)
        return TokenForward(self.model, autocast=autocast, entropy=self.settings.entropy)

    def _backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(loss)
        self._weights.collect()
