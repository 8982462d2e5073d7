"""A policy from scratch that answers a prompt's letter by some letters, improved by rewards alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipes.reward_model.letters import LETTERS, prompt_of
from reward_loop.credit.normalization import group_advantages

ANSWER_LETTERS = 6


@dataclass(frozen=True, slots=True)
class Samples:
    """Answers of the policy: N rows, those of one prompt one after the other."""

    prompts: torch.Tensor
    """[N]: numbers of letters."""
    answers: torch.Tensor
    """[N, T]."""

    @property
    def texts(self) -> list[str]:
        """Prompt and answer as the reward model reads them."""
        return [prompt_of(LETTERS[prompt]) + _text(answer) for prompt, answer in self._rows()]

    @property
    def true_share(self) -> float:
        """Share of the letters that are the wanted one: what the reward model was taught to prefer."""
        return (self.answers == self.prompts[:, None]).double().mean().item()

    def _rows(self) -> Sequence[tuple[int, list[int]]]:
        return list(zip(self.prompts.tolist(), self.answers.tolist(), strict=True))


class Policy:
    """A small Qwen2: tokens 0 … L-1 are letters of answers, L … 2L-1 the same letters as prompts."""

    def __init__(self, *, seed: int = 0, learning_rate: float = 2e-3) -> None:
        config = Qwen2Config(
            vocab_size=2 * len(LETTERS),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=32,
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            build: Any = Qwen2ForCausalLM  # untyped
            self._model: nn.Module = build(config)
        self._generator = torch.Generator().manual_seed(seed)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=learning_rate, betas=(0.9, 0.95))

    @torch.no_grad()
    def sample(self, per_letter: int) -> Samples:
        """Answer every letter `per_letter` times, at temperature 1."""
        prompts = torch.arange(len(LETTERS)).repeat_interleave(per_letter)
        ids = (prompts + len(LETTERS))[:, None]
        for _ in range(ANSWER_LETTERS):
            drawn = torch.multinomial(self._logits(ids)[:, -1].softmax(dim=-1), 1, generator=self._generator)
            ids = torch.cat([ids, drawn], dim=1)
        return Samples(prompts, ids[:, 1:])

    def improve(self, samples: Samples, rewards: Sequence[float]) -> None:
        """Take one REINFORCE step: each letter of an answer is made likelier by how far its reward is above its prompt's mean."""
        advantages = torch.tensor(group_advantages(rewards, samples.prompts.tolist()))
        ids = torch.cat([(samples.prompts + len(LETTERS))[:, None], samples.answers], dim=1)
        logprobs = self._logits(ids[:, :-1]).log_softmax(dim=-1)
        taken = logprobs.gather(2, samples.answers[..., None])[..., 0]
        # Each sample is used once, by the weights that drew it: the importance ratio is 1, and this is its gradient.
        torch.autograd.backward(-(taken * advantages[:, None]).mean())
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits of the letters alone: the prompts' tokens are never answers."""
        logits: torch.Tensor = self._model(ids, use_cache=False).logits
        return logits[..., : len(LETTERS)]


def _text(answer: Sequence[int]) -> str:
    return "".join(LETTERS[letter] for letter in answer)
