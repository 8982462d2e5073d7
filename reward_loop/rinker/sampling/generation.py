"""Sequences that are drawn together from one snapshot, a token of each at a time.

The prompt of a call is read once, however many sequences are drawn for it. Prompts of different lengths are padded on the left;
what has ended leaves the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampling.drawing import Drawing
from reward_loop.rinker.sampling.job import Job, Row
from reward_loop.rinker.sampling.prompt_scores import prompt_scores, top_logprobs
from reward_loop.rinker.sampling.uniforms import Keys, uniforms

_CROWDED = 0.75
"""Rows that have ended are cut out of the cache once fewer than this share is left: cutting copies all of it."""


class Generation:
    """A batch under way. Raises whatever the model raises; the caller fails the jobs then."""

    def __init__(self, model: Any, rows: Sequence[Row]) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._rows = list(rows)
        self._position = 0
        self._drawing = Drawing.of([row.job.call.params for row in rows], rows[0].job.profile.vocabulary, self._device)
        self._keys: Keys = np.array([row.key for row in rows], dtype=np.uint64)
        self._cache: Any = None
        self._mask: torch.Tensor | None = None
        self._lengths = torch.tensor([len(row.job.prompt) for row in rows], device=self._device)
        self._last = torch.tensor([row.longest - 1 for row in rows], device=self._device)

    @property
    def rows(self) -> list[Row]:
        """What is in the batch now."""
        return self._rows

    @property
    def live(self) -> bool:
        """Whether there is something left to draw."""
        return any(row.live for row in self._rows)

    @torch.inference_mode()
    def step(self) -> None:
        """Draw the next token of every sequence, and hand over what is done by that."""
        logits = self._read_prompts() if self._cache is None else self._read_tokens()
        self._take(logits.float())
        self._position += 1
        for job in {id(row.job): row.job for row in self._rows if not row.live}.values():
            if not job.future.done():
                job.settle()
        self._shrink()

    def _read_prompts(self) -> torch.Tensor:
        jobs = list({id(row.job): row.job for row in self._rows}.values())
        ids, mask = _left_padded([job.prompt for job in jobs], self._device)
        scoring = any(job.wants_prompt_scores for job in jobs)
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": True, "logits_to_keep": 0 if scoring else 1}
        if mask is not None:
            inputs |= {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        output = self._model(**inputs)
        if scoring:
            _score_prompts(jobs, output.logits)
        place = {id(job): number for number, job in enumerate(jobs)}
        prompt_of = torch.tensor([place[id(row.job)] for row in self._rows], device=self._device)
        self._cache = output.past_key_values
        if len(jobs) < len(self._rows):
            self._cache.batch_select_indices(prompt_of)
        self._mask = None if mask is None else mask[prompt_of]
        logits: torch.Tensor = output.logits[:, -1]
        return logits[prompt_of]

    def _read_tokens(self) -> torch.Tensor:
        last = torch.tensor([[row.tokens[-1]] for row in self._rows], device=self._device)
        # A row that has ended but is still in the batch repeats its last token; what comes of it is not looked at. Its position
        # stays where the model has one: learned positions end.
        positions = torch.minimum(self._lengths + self._position - 1, self._last).unsqueeze(-1)
        if self._mask is not None:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._rows), 1)], dim=1)
        output = self._model(
            input_ids=last,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _take(self, logits: torch.Tensor) -> None:
        finite = torch.isfinite(logits.amax(-1)).tolist()
        if not all(finite):
            self._refuse_broken(finite)
            logits = logits.nan_to_num()
        logprobs = torch.log_softmax(logits, dim=-1)
        numbers = torch.from_numpy(uniforms(self._keys, self._position)).to(self._device)
        tokens = self._drawing.draw(logits, numbers)
        chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        width = max(row.job.call.topk_sample_logprobs for row in self._rows)
        top = top_logprobs(logprobs, width) if width else None
        for number, (row, token, logprob) in enumerate(zip(self._rows, tokens.tolist(), chosen.tolist(), strict=True)):
            if row.live:
                if top is not None:
                    row.top.append(top[number][: row.job.call.topk_sample_logprobs])
                row.add(token, logprob)

    def _refuse_broken(self, finite_rows: Sequence[bool]) -> None:
        for row, finite in zip(self._rows, finite_rows, strict=True):
            if not finite:
                name = row.job.snapshot.id
                row.job.fail(
                    RequestFailedError(
                        f"the weights of {name} give scores that are no numbers: did the training diverge?", category="server"
                    )
                )

    def _shrink(self) -> None:
        alive = [number for number, row in enumerate(self._rows) if row.live]
        if not alive or len(alive) > _CROWDED * len(self._rows):
            return
        keep = torch.tensor(alive, device=self._device)
        self._rows = [self._rows[number] for number in alive]
        self._keys = self._keys[alive]
        self._drawing = self._drawing.select(keep)
        self._lengths, self._last = self._lengths[keep], self._last[keep]
        self._cache.batch_select_indices(keep)
        self._mask = None if self._mask is None else self._mask[keep]


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    longest = max(len(prompt) for prompt in prompts)
    rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    ids = torch.tensor(rows, device=device)
    if all(len(prompt) == longest for prompt in prompts):
        return ids, None
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask


def _score_prompts(jobs: Sequence[Job], logits: torch.Tensor) -> None:
    for number, job in enumerate(jobs):
        if job.wants_prompt_scores and job.prompt_scores is None:
            job.prompt_scores = prompt_scores(logits[number], job.prompt, job.call.topk_prompt_logprobs)
