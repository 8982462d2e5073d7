"""Whether a server can compute: it can't while it sleeps, nor with weights that were dropped and not synced.

vLLM itself would let requests wait for the end of a sleep, and compute with whatever lies where the weights were.
Invariant: no clock, no I/O; a state is left only by what the engine has confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass

from reward_loop.serving.inside.reply import Refusal

_COMPUTES = (
    "/classify",
    "/cohere/",
    "/generative_scoring",
    "/inference/",
    "/invocations",
    "/pooling",
    "/rerank",
    "/score",
    "/v1/audio/",
    "/v1/chat/",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
    "/v2/",
)


@dataclass(slots=True)
class Residence:
    """What of the model is in memory."""

    asleep: bool = False
    weights_asleep: bool = False
    """False also while all but the weights sleeps: they can be synced then."""
    dropped: bool = False

    def check(self) -> None:
        """Raise Refusal (503, 409) if nothing can be computed now."""
        if self.asleep:
            raise Refusal(503, "asleep", "the server sleeps; hold a lease of the RewardModelManager, or POST /wake_up first")
        self.check_dropped()

    def check_weights(self) -> None:
        """Raise Refusal (503) if there is no place for weights now."""
        if self.weights_asleep:
            raise Refusal(503, "asleep", "the weights sleep; hold a lease, or POST /wake_up?tags=weights, before they are synced")

    def check_dropped(self) -> None:
        """Raise Refusal (409) if the weights were dropped."""
        if self.dropped:
            raise Refusal(409, "weights_dropped", "the weights were dropped (sleep level 2); sync them all before scoring")


def computes(path: str) -> bool:
    """Say whether a request to this path needs the model."""
    return path.startswith(_COMPUTES)
