"""Episodes scored by the reward loop: any of its managers, rubrics and reward models, as soon as an episode has ended.

Invariants: what the reward loop is given is the policy's own tokens and what the environment says of the task; `on_error` decides
what a failed sample is worth; nothing is read of one that is masked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import torch

from reward_loop.config_loading import load_config
from reward_loop.data import DataProto
from reward_loop.loop.manager import RewardLoopManager
from reward_loop.outcome import FAILED, MASK_KEY, RESERVED_KEYS, STATUS_KEY
from reward_loop.rinker.rl.rewards import EpisodeReward, numbers
from reward_loop.rinker.rl.types import Env, Trajectory

_SCORES, _TEXT = "rm_scores", "solution_str"


class RewardLoopRewards:
    """An EpisodeScorer over a RewardLoopManager; a context manager. `tokenizer` (the policy's) turns answers into text.

    Without one their text is the token ids, with spaces between them; `response_ids` are there either way.
    `combine` "replace" puts its rewards in the place of the environment's, "add" adds them.
    """

    def __init__(
        self, manager: RewardLoopManager, tokenizer: Any = None, *, combine: Literal["replace", "add"] = "replace"
    ) -> None:
        self._manager, self._tokenizer, self._combine = manager, tokenizer, combine

    @classmethod
    def open(
        cls,
        config: Mapping[str, Any],
        tokenizer: Any = None,
        *,
        use_reward_loop: bool | None = None,
        combine: Literal["replace", "add"] = "replace",
    ) -> Self:
        """Start a reward loop of this configuration; `use_reward_loop` overrides that of `reward_model`."""
        forced = [] if use_reward_loop is None else [f"reward_model.use_reward_loop={str(use_reward_loop).lower()}"]
        return cls(RewardLoopManager(load_config(config, overrides=forced)), tokenizer, combine=combine)

    @property
    def whole_groups(self) -> bool:
        """See `EpisodeScorer`."""
        return self._manager.unit != "single"

    async def score(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> list[EpisodeReward]:
        """See `EpisodeScorer`. Raises BatchFailed under `on_error: raise`."""
        batch = self._batch(group, episodes)
        if not self.whole_groups and len(episodes) == 1:
            result = await self._manager.compute_score(batch)
            return [self._reward(result["reward_score"], result["reward_extra_info"])]
        scored = await self._manager.compute_rm_score_async(batch)
        keys = [*scored.meta_info["reward_extra_keys"], MASK_KEY]
        return [self._row(scored, row, keys) for row in range(len(episodes))]

    async def close(self) -> None:
        """Stop the reward loop."""
        await asyncio.to_thread(self._manager.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _batch(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> DataProto:
        drawn = [[token for step in trajectory.transitions for token in step.ac.tokens] for _, trajectory in episodes]
        lengths = [max(1, len(tokens)) for tokens in drawn]  # the reward of an empty answer needs a place to stand at
        width = max(lengths, default=1)
        columns = [dict(env.reward_columns()) for env, _ in episodes]
        names = dict.fromkeys(name for row in columns for name in row)
        non_tensors: dict[str, list[Any]] = {name: [row.get(name) for row in columns] for name in names}
        non_tensors["uid"] = [group] * len(episodes)
        non_tensors["__num_turns__"] = [len(trajectory.transitions) for _, trajectory in episodes]
        non_tensors["response_len"] = lengths
        non_tensors.setdefault("data_source", ["rinker"] * len(episodes))
        if _TEXT not in non_tensors:
            non_tensors[_TEXT] = [self._text(tokens) for tokens in drawn]
        responses = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens in drawn], dtype=torch.int64)
        return DataProto.from_dict({"responses": responses.reshape(len(episodes), width)}, non_tensors)

    def _text(self, tokens: Sequence[int]) -> str:
        if self._tokenizer is None:
            return " ".join(map(str, tokens))
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _row(self, scored: DataProto, row: int, keys: Sequence[str]) -> EpisodeReward:
        scores, mask = scored.tensor(_SCORES), scored.tensor(MASK_KEY)
        extra = {key: column[row] for key in keys if (column := scored.column(key)) is not None}
        counts = 1 if mask is None else int(mask[row])
        value = 0.0 if scores is None else float(scores[row].double().sum())
        return self._reward(value, {**extra, MASK_KEY: counts})

    def _reward(self, score: float | list[float], extra: Mapping[str, Any]) -> EpisodeReward:
        value = sum(score) if isinstance(score, list) else float(score)
        known = {key: item for key, item in extra.items() if key not in RESERVED_KEYS}
        failed = extra.get(STATUS_KEY) in FAILED
        return EpisodeReward(value if extra[MASK_KEY] else None, numbers(known), self._combine == "replace", failed)
