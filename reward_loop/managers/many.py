"""What the managers share whose function sees many samples in one call."""

from __future__ import annotations

import functools
from typing import Any

from reward_loop.data import DataProto
from reward_loop.data.sample import Sample
from reward_loop.errors import InvalidReward, RewardLoopError
from reward_loop.functions.custom import OFFERED_TO_BATCH, required_inputs
from reward_loop.managers.base import ManagerKwargs, RewardManagerBase


class ManySamplesManager(RewardManagerBase):
    """Call `compute_score(data_sources, solution_strs, ground_truths, extra_infos)`, which returns one result per sample.

    Each result is what a function of one sample may return (None: this one can't be judged); one that is no reward costs its
    own sample only.
    """

    kwargs_model = ManagerKwargs
    offered = OFFERED_TO_BATCH

    @functools.cached_property
    def required(self) -> frozenset[str]:
        """The inputs that the function can't do without."""
        return required_inputs(self._function)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one sample as a batch of one."""
        result = (await self.score_all(data[len(data) - 1 :]))[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def score_all(self, data: DataProto) -> list[dict[str, Any] | Exception]:
        """Score all rows in one call: per row its result, or the exception that it ended with."""
        rows = self.reader(data).read(range(len(data)))
        samples = [row for row in rows if isinstance(row, Sample)]
        results: Any = await self.call(self.inputs_of(samples)) if samples else []
        if hasattr(results, "tolist"):  # an array or a tensor
            results = results.tolist()
        if not isinstance(results, list | tuple) or len(results) != len(samples):
            raise InvalidReward(f"expected a list of {len(samples)} rewards, one per sample; got {results!r:.200}")
        finished = iter([self._finish(sample, result) for sample, result in zip(samples, results, strict=True)])
        return [next(finished) if isinstance(row, Sample) else row for row in rows]

    def inputs_of(self, samples: list[Sample]) -> dict[str, Any]:
        """Return what the function may take by keyword."""
        inputs: dict[str, Any] = {
            "data_sources": [sample.data_source for sample in samples],
            "solution_strs": [sample.solution_str for sample in samples],
            "ground_truths": [sample.ground_truth for sample in samples],
            "extra_infos": [sample.extra_info for sample in samples],
        }
        if self.reward_router_address:
            inputs["reward_router_address"] = self.reward_router_address
            inputs["reward_model_tokenizer"] = self.reward_model_tokenizer
        return inputs

    def _finish(self, sample: Sample, result: object) -> dict[str, Any] | Exception:
        try:
            return self.finish(sample, result).as_result()
        except RewardLoopError as error:
            return error
