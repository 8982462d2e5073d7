"""The learner's side of a step: passes over parts of the data, and steps of the optimiser between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reward_loop.errors import TrainingError
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.losses.metrics import joined_metrics
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.kl import kl_sample_train
from reward_loop.rinker.rl.training_sequence import FloatArray, TrainingSequence
from reward_loop.rinker.types import AdamParams, ForwardBackwardOutput

_RENAMED = {"entropy": "policy_entropy"}
"""The cookbook's entropy is that of the sampled tokens; the engine's own is exact, over the vocabulary."""


class PolicyLearner:
    """Passes and steps of one step of the run; `metrics` sums them up."""

    def __init__(self, client: TrainingClient, config: RLConfig) -> None:
        self._client, self._config = client, config
        self._parts: list[tuple[Mapping[str, float], int]] = []
        self._sequences: list[TrainingSequence] = []
        self._logprobs: list[FloatArray] = []
        self._optimizer: Mapping[str, float] = {}
        self._waiting = 0

    @property
    def tokens(self) -> int:
        """Tokens that went through the model, prompts included."""
        return sum(len(sequence.tokens) - 1 for sequence in self._sequences)

    @property
    def sequences(self) -> Sequence[TrainingSequence]:
        """What was trained on."""
        return self._sequences

    async def learn(self, sequences: Sequence[TrainingSequence], then_step: AdamParams | None = None) -> None:
        """Add the gradients of these sequences; `then_step` steps with all that were added since the last step, if any were."""
        config = self._config
        passed = None
        if sequences:
            data = [sequence.datum(config.loss_fn) for sequence in sequences]
            passed = self._client.forward_backward(data, config.loss_fn, dict(config.loss_fn_config) or None)
            self._waiting += 1
        # Both are asked for before either is awaited: the step need not wait for the way back of the pass's results.
        stepped = self._client.optim_step(then_step) if then_step is not None and self._waiting else None
        if passed is not None:
            self._note(sequences, await passed)
        if stepped is not None:
            self._optimizer = (await stepped).metrics or {}
            self._waiting = 0

    def metrics(self, adam: AdamParams) -> dict[str, float]:
        """Return what is known of the optimisation."""
        joined = {name.partition(":")[0]: value for name, value in joined_metrics(self._parts).items()}
        found = {f"optim/{_RENAMED.get(name, name)}": value for name, value in joined.items()}
        found |= {f"optim/{name.partition(':')[0]}": value for name, value in self._optimizer.items()}
        return {**found, **kl_sample_train(self._sequences, self._logprobs), "optim/lr": adam.learning_rate}

    def _note(self, sequences: Sequence[TrainingSequence], output: ForwardBackwardOutput) -> None:
        if len(output.loss_fn_outputs) != len(sequences):
            raise TrainingError(f"{len(output.loss_fn_outputs)} outputs came back for {len(sequences)} data")
        self._parts.append((output.metrics, len(sequences)))
        self._sequences += sequences
        self._logprobs += [np.asarray(one["logprobs"].to_numpy(), dtype=np.float64) for one in output.loss_fn_outputs]
