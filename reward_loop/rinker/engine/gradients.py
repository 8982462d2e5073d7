"""The gradients that calls add up until a step takes them.

Invariant: a call adds all of its gradients or none; what is not finite is never added.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.training.master_weights import MasterWeights


class Gradients:
    """Those of the weights that the optimiser steps, in float32."""

    def __init__(self, weights: MasterWeights, ranks: Ranks) -> None:
        self._weights, self._ranks = weights, ranks
        self._calls = 0

    @property
    def empty(self) -> bool:
        """Whether no call has added any since the last step."""
        return self._calls == 0

    @contextmanager
    def added(self) -> Generator[None]:
        """Add what the backward passes inside give; nothing of it if that ends with an error, or is not finite."""
        masters = self._masters
        before = [master.grad for master in masters]
        self._set([None] * len(masters))
        try:
            yield
            self._check()
        except BaseException:  # Ctrl-C too: the gradients of earlier calls must stay as they were
            self._weights.drop_uncollected()
            self._set(before)
            raise
        for master, old in zip(masters, before, strict=True):
            if old is not None:
                master.grad = old if master.grad is None else old.add_(master.grad)
        self._calls += 1

    def clip(self, limit: float) -> float:
        """Sum over ranks, shorten all together to a norm of `limit` (0: leave them), and return the norm that they had."""
        masters = self._masters
        self._ranks.sum_gradients(masters)
        norm = torch.nn.utils.clip_grad_norm_(masters, limit or float("inf"))
        whole = getattr(norm, "full_tensor", None)  # of FSDP 2
        return float(norm if whole is None else whole())

    def drop(self) -> None:
        """Forget them."""
        self._set([None] * len(self._masters))
        self._calls = 0

    @property
    def _masters(self) -> list[torch.Tensor]:
        return list(self._weights.masters.values())

    def _set(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for master, gradient in zip(self._masters, gradients, strict=True):
            master.grad = gradient

    def _check(self) -> None:
        given = {name: master.grad for name, master in self._weights.masters.items() if master.grad is not None}
        # One question for all of them: each answer that is waited for stops a GPU.
        finite = torch.stack([_finite(gradient) for gradient in given.values()]).tolist() if given else []
        bad = [name for name, good in zip(given, finite, strict=True) if not good]
        if self._ranks.most(float(bool(bad))):
            named = bad[0] if bad else "a weight on another rank"
            raise RequestFailedError(
                f"the gradient of {named} is not finite, though the loss is: nothing was added to the gradients. Look at the "
                "data, or go back to an earlier checkpoint and lower the learning rate",
                category="user",
            )


def _finite(gradient: torch.Tensor) -> torch.Tensor:
    own = getattr(gradient, "to_local", None)  # of FSDP 2
    found: torch.Tensor = gradient if own is None else own()
    return found.isfinite().all()
