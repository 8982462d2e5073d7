"""A manager that overrides `run_single`, as managers written for verl do: it reads the batch and calls the function itself."""

from __future__ import annotations

from typing import Any

from reward_loop import DataProto, RewardManagerBase, register


@register("weighted")
class WeightedManager(RewardManagerBase):
    """Multiply the reward by the weight that the sample's extra info holds."""

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one sample of token ids; the pipeline of the base class (`inputs`, `shape`) takes no part."""
        item = data[0]
        columns = item.non_tensor_batch
        tensors: Any = item.batch
        ids = tensors["responses"]
        length = int(tensors["attention_mask"][-len(ids) :].sum())
        text = await self.loop.run_in_executor(None, lambda: self.tokenizer.decode(ids[:length], skip_special_tokens=True))
        score = self.compute_score(
            data_source=columns["data_source"],
            solution_str=text,
            ground_truth=columns["reward_model"]["ground_truth"],
            extra_info=columns["extra_info"],
        )
        return {"reward_score": columns["extra_info"]["weight"] * score, "reward_extra_info": {"acc": score}}
