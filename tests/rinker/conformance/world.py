"""What the conformance checks are run with: a client library, a service, and a model that the service has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.rinker.conformance.tiny_policy import VOCABULARY


@dataclass(frozen=True, slots=True)
class World:
    """`tinker` is the module (`reward_loop.rinker`, or the SDK); the service clients are its."""

    tinker: Any
    service: Any
    base_model: str
    chunked: Any
    """A service client that cuts a pass of five data into several operations."""

    def model(self, service: Any = None, *, seed: int = 0) -> Any:
        """Return a client of a new model with adapters of rank 4."""
        chosen = service or self.service
        return chosen.create_lora_training_client(base_model=self.base_model, rank=4, seed=seed).result()

    def prompt(self, *tokens: int) -> Any:
        """Return a model input."""
        return self.tinker.ModelInput.from_ints(list(tokens))

    def params(self, **params: Any) -> Any:
        """Return sampling parameters; nothing ends a sequence unless they say so."""
        return self.tinker.SamplingParams(**{"stop": [], "max_tokens": 4} | params)

    def adam(self, learning_rate: float = 1e-2) -> Any:
        """Return parameters of a step that is large enough to be seen."""
        return self.tinker.AdamParams(learning_rate=learning_rate)

    def texts(self, count: int = 6, length: int = 8) -> list[list[int]]:
        """Return sequences of tokens, all different."""
        return [[(3 * row + 5 * at + row * at) % VOCABULARY for at in range(length)] for row in range(count)]

    def supervised(self, texts: Sequence[Sequence[int]] | None = None) -> list[Any]:
        """Return data for cross_entropy, of which every token counts."""
        return [
            self.tinker.Datum(
                model_input=self.prompt(*text[:-1]),
                loss_fn_inputs={"target_tokens": list(text[1:]), "weights": [1.0] * (len(text) - 1)},
            )
            for text in texts or self.texts()
        ]

    def reinforced(self) -> list[Any]:
        """Return data for losses on ratios: as if other weights had drawn them, some too much and some too little."""
        return [
            self.tinker.Datum(
                model_input=self.prompt(*text[:-1]),
                loss_fn_inputs={
                    "target_tokens": list(text[1:]),
                    "logprobs": [-2.7 - 0.05 * ((row + at) % 4) for at in range(len(text) - 1)],
                    "advantages": [0.5 - 0.3 * ((row * 2 + at) % 5) for at in range(len(text) - 1)],
                },
            )
            for row, text in enumerate(self.texts())
        ]

    def logprobs(self, client: Any, data: Sequence[Any] | None = None) -> list[list[float]]:
        """Return the log-probabilities of the targets under the weights of a training client."""
        output = client.forward(list(data or self.supervised()), "cross_entropy").result()
        return [row["logprobs"].tolist() for row in output.loss_fn_outputs]

    def trained(self, client: Any, steps: int = 1) -> None:
        """Train a client's model."""
        for _ in range(steps):
            client.forward_backward(self.supervised(), "cross_entropy")
            client.optim_step(self.adam()).result()
