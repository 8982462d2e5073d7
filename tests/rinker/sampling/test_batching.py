from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.sampling.batching import next_batch
from reward_loop.rinker.sampling.job import Job, Row
from reward_loop.rinker.sampling.profile import ModelProfile
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.sampling.stops import Stops
from tests.rinker.sampling.policies import call

PROFILE = ModelProfile("a model", vocabulary=100, context=1000, end_tokens=frozenset())


def job(samples: int = 1, *, prompt: int = 4, answer: int = 6, snapshot: str = "a", scored: bool = False) -> Job:
    asked = call([1] * prompt, samples, max_tokens=answer, prompt_scores=scored)
    return Job(Snapshot(snapshot, "a model"), PROFILE, asked, [1] * prompt, answer, 0, Stops(asked.params, PROFILE, lambda _: ""))


def batches(jobs: Sequence[Job], settings: HFSamplerSettings) -> list[list[int]]:
    """Which jobs (by number) the rows of each batch belong to."""
    waiting: deque[Row] = deque(row for one in jobs for row in one.rows)
    found: list[list[int]] = []
    while waiting:
        found.append([list(jobs).index(row.job) for row in next_batch(waiting, settings)])
    return found


def test_what_waits_for_one_snapshot_runs_together_and_the_others_keep_their_order() -> None:
    jobs = [job(2), job(snapshot="b"), job(), job(snapshot="b"), job(snapshot="c")]
    assert batches(jobs, HFSamplerSettings()) == [[0, 0, 2], [1, 3], [4]]


def test_calls_for_scores_of_prompts_run_among_themselves() -> None:
    assert batches([job(), job(scored=True), job()], HFSamplerSettings()) == [[0, 2], [1]]


def test_a_batch_holds_no_more_tokens_than_it_may_each_counted_at_the_longest() -> None:
    assert batches([job(5)], HFSamplerSettings(max_batch_tokens=20)) == [[0, 0], [0, 0], [0]]
    # Beside a prompt of 10, one of 4 takes as much room: it is padded.
    assert batches([job(prompt=10), job(), job()], HFSamplerSettings(max_batch_tokens=32)) == [[0, 1], [2]]


def test_what_is_too_large_for_any_batch_runs_alone() -> None:
    assert batches([job(prompt=100), job(), job()], HFSamplerSettings(max_batch_tokens=20)) == [[0], [1, 2]]


def test_a_batch_has_no_more_sequences_than_it_may() -> None:
    assert batches([job(3), job(2)], HFSamplerSettings(max_batch_sequences=2)) == [[0, 0], [0, 1], [1]]


def test_scores_of_prompts_are_bounded_by_the_prompts_not_by_the_samples() -> None:
    jobs = [job(3, scored=True), job(scored=True), job(scored=True)]
    assert batches(jobs, HFSamplerSettings(max_prompt_logits=2 * 4 * 100)) == [[0, 0, 0, 1], [2]]


def test_what_nobody_waits_for_any_more_is_left_out() -> None:
    jobs = [job(), job()]
    jobs[0].future.cancel()
    assert batches(jobs, HFSamplerSettings()) == [[1]]
