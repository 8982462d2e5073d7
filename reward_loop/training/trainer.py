"""Training a reward model on preferences: one plain loop for heads, adapters and whole models.

Invariants: the same model, pairs and settings give the same weights, bit for bit, also when the process was killed in between and
went on from a checkpoint; the caller's random numbers are not touched; no weight is ever changed by a loss that is not finite.
"""

from __future__ import annotations

import hashlib
import logging
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reward_loop.errors import TrainingError
from reward_loop.training.batches import BatchOrder, collate, micro_batches
from reward_loop.training.checkpoints import Checkpoints, check_same_run, read_state
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.evaluation import Evaluation, evaluate
from reward_loop.training.losses import bradley_terry_loss, preferred
from reward_loop.training.master_weights import MasterWeights
from reward_loop.training.readout import Readout
from reward_loop.training.reward_model import label_count, plain_model
from reward_loop.training.scores import sequence_scores
from reward_loop.training.settings import TrainingSettings, learning_rate_factor
from reward_loop.training.training_modes import trained_parameters

logger = logging.getLogger(__name__)

_SHOWN_PAIRS = 8
_SAMPLED_WEIGHTS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One update: `loss` and `accuracy` are of its own pairs, before it; `held_out` after it, where it was looked at."""

    number: int
    """From 1."""
    steps: int
    loss: float
    accuracy: float
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    held_out: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """What a training came to."""

    steps: Sequence[Step] = field(default_factory=tuple[Step, ...])
    """All of them, those before a resumption too."""
    held_out: Evaluation | None = None
    """After the last step; None without held-out pairs."""
    seconds: float = 0.0
    """Of this process."""


def train_reward_model(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    settings: TrainingSettings | None = None,
    *,
    held_out: Sequence[EncodedPair] = (),
    checkpoints: str | Path | None = None,
    resume: bool = True,
    on_step: Callable[[Step], None] | None = None,
) -> Training:
    """Train what is not frozen of `model` (see `trained_by`), in place, to prefer as the pairs say; it ends in eval mode.

    `checkpoints` is the directory of this training's checkpoints; with `resume` it goes on from the newest one there, if any.
    `on_step` is called after every step of this process. Raises TrainingError for pairs that don't fit the head, for a loss or
    gradient that is not finite (with the step and its pairs), and for a checkpoint of another training.
    """
    run = _Run(model, pairs, settings or TrainingSettings(), held_out, checkpoints)
    device = run.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(run.settings.seed)
        return run.train(resume, on_step)


class _Run:
    """One training, from its checks to its result."""

    def __init__(
        self,
        model: nn.Module,
        pairs: Sequence[EncodedPair],
        settings: TrainingSettings,
        held_out: Sequence[EncodedPair],
        checkpoints: str | Path | None,
    ) -> None:
        if not pairs:
            raise TrainingError("there are no pairs to train on")
        _check_pairs(model, pairs, settings.readout, "pairs")
        _check_pairs(model, held_out, settings.readout, "held_out")
        self.model, self.pairs, self.settings, self.held_out = model, pairs, settings, held_out
        self.device = next(model.parameters()).device
        self._steps = settings.total_steps(len(pairs))
        self._order = BatchOrder(len(pairs), settings.batch_pairs, settings.seed)
        self._weights = MasterWeights(trained_parameters(model))
        self._optimizer = torch.optim.AdamW(
            list(self._weights.masters.values()),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._checkpoints = None if checkpoints is None else Checkpoints(checkpoints, settings.keep_checkpoints)
        self._history: list[Step] = []

    def train(self, resume: bool, on_step: Callable[[Step], None] | None) -> Training:
        """Do every step that is left."""
        began = time.monotonic()
        if resume:
            self._resume()
        for index in range(len(self._history), self._steps):
            self.model.train()
            step = self._step(index)
            self._history.append(step)
            self._keep(step)
            if on_step is not None:
                on_step(step)
        self.model.eval()
        held_out = self._history[-1].held_out
        return Training(tuple(self._history), held_out, time.monotonic() - began)

    def _step(self, index: int) -> Step:
        settings = self.settings
        rate = settings.learning_rate * learning_rate_factor(index, self._steps, settings.warmup_steps)
        rows = self._order.rows(index)
        loss, right = self._backward(index, rows)
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights.masters.values(), settings.max_grad_norm))
        self._check_finite(index, rows, "the norm of the gradient", norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._weights.hand_back()
        held_out = self._evaluate() if self._due(settings.evaluate_every, index + 1) else None
        return Step(index + 1, self._steps, loss, right, norm, rate, held_out)

    def _backward(self, index: int, rows: Sequence[int]) -> tuple[float, float]:
        """Add up the gradients of the mean loss over these rows; return that loss and the accuracy."""
        size = self.settings.micro_batch_pairs or len(rows)
        loss_sum, right = 0.0, 0
        for some in micro_batches(rows, self.pairs, size, by_length=self.settings.by_length):
            batch = collate([self.pairs[row] for row in some], self._pad, self.device)
            scores = sequence_scores(self.model, batch.input_ids, batch.attention_mask)
            chosen, rejected = self.settings.readout.rewards(scores, batch.labels.repeat(2)).chunk(2)
            loss = bradley_terry_loss(chosen, rejected, batch.margins, centring=self.settings.centring)
            self._check_finite(index, some, "the loss", value := loss.item())
            torch.autograd.backward(loss * (len(some) / len(rows)))
            self._weights.collect()
            loss_sum += value * len(some)
            right += int(preferred(chosen, rejected).sum())
        return loss_sum / len(rows), right / len(rows)

    @property
    def _pad(self) -> int:
        config: Any = plain_model(self.model).config
        return int(config.get_text_config().pad_token_id)

    def _check_finite(self, index: int, rows: Sequence[int], what: str, value: float) -> None:
        if value - value == 0.0:
            return
        shown = ", ".join(map(str, rows[:_SHOWN_PAIRS])) + (", …" if len(rows) > _SHOWN_PAIRS else "")
        raise TrainingError(
            f"{what} is {value} in step {index + 1} of {self._steps}, whose pairs are {shown}; lower "
            f"learning_rate={self.settings.learning_rate} or look at these pairs. The weights are those of step {index}"
        )

    def _due(self, every: int | None, step: int) -> bool:
        return step == self._steps or (every is not None and step % every == 0)

    def _evaluate(self) -> Evaluation | None:
        return evaluate(self.model, self.held_out, self.settings.readout) if self.held_out else None

    def _keep(self, step: Step) -> None:
        if step.held_out is not None:
            logger.info("step=%d/%d loss=%.4f held_out_accuracy=%.4f", step.number, step.steps, step.loss, step.held_out.accuracy)
        if self._checkpoints is not None and self._due(self.settings.checkpoint_every, step.number):
            self._checkpoints.write(step.number, self.model, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "run": dict(self._what_decides()),
            "steps": [asdict(step) for step in self._history],
            "weights": self._weights.state(),
            "optimizer": self._optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def _resume(self) -> None:
        folder = None if self._checkpoints is None else self._checkpoints.latest()
        if folder is None:
            return
        state = read_state(folder)
        check_same_run(folder, state["run"], self._what_decides())
        self._weights.load(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)
        self._history = [_step_of(step) for step in state["steps"]]
        logger.info("step=%d/%d resumed from %s", len(self._history), self._steps, folder)

    def _what_decides(self) -> Mapping[str, Any]:
        return {
            **self.settings.what_decides(),
            "steps": self._steps,
            "the model's digest": _digest_of_model(self.model),
            "the pairs' digest": _digest_of_pairs(self.pairs),
        }


def _check_pairs(model: nn.Module, pairs: Sequence[EncodedPair], readout: Readout, what: str) -> None:
    """Raise TrainingError for pairs, called `what`, that the model can't score, or that no label of it is about."""
    readout.check(label_count(model), pairs, what)
    config: Any = plain_model(model).config
    text = config.get_text_config()
    longest = getattr(text, "max_position_embeddings", None)
    for index, pair in enumerate(pairs):
        if not pair.chosen or not pair.rejected:
            raise TrainingError(f"an answer holds no token: {pair!r:.120}", f"{what}[{index}]")
        highest = max(*pair.chosen, *pair.rejected)
        if highest >= text.vocab_size:
            raise TrainingError(
                f"token {highest} is none of the model's {text.vocab_size}; was it encoded by another tokenizer?",
                f"{what}[{index}]",
            )
        if longest is not None and pair.longest > longest:
            raise TrainingError(
                f"the pair is {pair.longest} tokens and the model takes {longest}; encode it with max_tokens={longest}",
                f"{what}[{index}]",
            )


def _digest_of_model(model: nn.Module) -> str:
    """Changes with what is trained and, by a sample of each frozen weight, with what it is trained on."""
    digest = hashlib.sha256()
    for name, value in model.named_parameters():
        sample = [] if value.requires_grad else value.detach().flatten()[:_SAMPLED_WEIGHTS].tolist()
        digest.update(f"{name} {tuple(value.shape)} {sample}\n".encode())
    return digest.hexdigest()[:16]


def _digest_of_pairs(pairs: Sequence[EncodedPair]) -> str:
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(f"{len(pair.chosen)} {len(pair.rejected)} {pair.margin} {pair.label}\n".encode())
        digest.update(array("q", pair.chosen + pair.rejected))
    return digest.hexdigest()[:16]


def _step_of(saved: Mapping[str, Any]) -> Step:
    held_out = saved["held_out"]
    step = Step(**saved)
    return step if held_out is None else replace(step, held_out=Evaluation(**held_out))
