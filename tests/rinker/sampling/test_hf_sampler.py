from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.tiny_models import judge, tokenizer
from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.types import SampleResponse
from tests.one_thread import one_thread as one_thread
from tests.rinker.conformance.tiny_policy import CONTEXT, VOCABULARY, tiny_policy
from tests.rinker.sampling.policies import call, model_of, policy_with_learned_positions, scores_of


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.2)


@pytest.fixture(scope="module")
def ending_policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One whose configuration names an end token."""
    return tiny_policy(tmp_path_factory.mktemp("ending"), eos_token_id=3)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One with a tokenizer."""
    return str(judge(tmp_path_factory.mktemp("writer")))


@pytest.fixture
async def sampler() -> AsyncIterator[HFSampler]:
    sampler = HFSampler(HFSamplerSettings(device="cpu"))
    yield sampler
    await sampler.close()


def base(path: str) -> Snapshot:
    return Snapshot("base", path)


async def sampled_together(sampler: HFSampler, snapshot: Snapshot, *calls: SampleCall) -> list[SampleResponse]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sampler.sample(snapshot, one)) for one in calls]
    return [task.result() for task in tasks]


def tokens_of(response: SampleResponse) -> list[list[int]]:
    return [sequence.tokens for sequence in response.sequences]


async def test_logprobs_are_the_models_own_whatever_is_batched_and_however_it_is_drawn(sampler: HFSampler, policy: str) -> None:
    prompts = [[1], [2, 3, 4], [5, 6, 7, 8, 9, 10], [4, 4, 4]]
    calls = [
        call(prompt, 3, max_tokens=3 + 2 * n, temperature=0.5 + n / 2, top_k=8, top_p=0.9) for n, prompt in enumerate(prompts)
    ]
    for prompt, response in zip(prompts, await sampled_together(sampler, base(policy), *calls), strict=True):
        for sequence in response.sequences:
            assert sequence.stop_reason == "length"
            expected = scores_of(policy, [*prompt, *sequence.tokens])[len(prompt) - 1 :]
            assert sequence.logprobs == pytest.approx(expected, abs=1e-5)


async def test_a_seed_draws_the_same_whatever_else_is_in_the_batch(sampler: HFSampler, policy: str) -> None:
    seeded = call([1, 2, 3], 4, seed=7, max_tokens=8)
    alone = await sampler.sample(base(policy), seeded)
    crowd = [call(list(range(n)), 2, seed=n, max_tokens=n) for n in range(1, 8)]
    _, together, *_ = await sampled_together(sampler, base(policy), crowd[0], seeded, *crowd[1:])
    assert tokens_of(together) == tokens_of(alone)
    assert len({tuple(tokens) for tokens in tokens_of(alone)}) == 4


async def test_what_has_ended_may_stay_in_the_batch_of_a_model_with_learned_positions(sampler: HFSampler, tmp_path: Path) -> None:
    policy = policy_with_learned_positions(tmp_path, positions=64)
    prompts = [[1] * 60, *([n, 2, 3, 4] for n in range(7))]
    calls = [call(prompt, max_tokens=4 if len(prompt) == 60 else 40, seed=1) for prompt in prompts]
    for prompt, response in zip(prompts, await sampled_together(sampler, base(policy), *calls), strict=True):
        [sequence] = response.sequences
        expected = scores_of(policy, [*prompt, *sequence.tokens])[len(prompt) - 1 :]
        assert sequence.logprobs == pytest.approx(expected, abs=1e-4)


async def test_a_call_that_is_split_over_batches_draws_the_same(sampler: HFSampler, policy: str) -> None:
    seeded = call([1, 2, 3], 7, seed=7, max_tokens=5, prompt_scores=True)
    whole = await sampler.sample(base(policy), seeded)
    small = HFSampler(HFSamplerSettings(device="cpu", max_batch_sequences=2))
    split = await small.sample(base(policy), seeded)
    await small.close()
    assert tokens_of(split) == tokens_of(whole)
    assert split.prompt_logprobs == pytest.approx(whole.prompt_logprobs)


async def test_without_a_seed_no_two_calls_draw_the_same(sampler: HFSampler, policy: str) -> None:
    first, second = await sampled_together(sampler, base(policy), *[call([1], max_tokens=20)] * 2)
    assert tokens_of(first) != tokens_of(second)


async def test_tokens_come_as_often_as_the_model_says(sampler: HFSampler, policy: str) -> None:
    response = await sampler.sample(base(policy), call([1, 2], 1000, max_tokens=1, seed=1, temperature=0.7))
    counts = Counter(sequence.tokens[0] for sequence in response.sequences)
    with torch.inference_mode():
        wanted = torch.softmax(model_of(policy)(input_ids=torch.tensor([[1, 2]])).logits[0, -1] / 0.7, dim=-1).tolist()
    for token, share in enumerate(wanted):
        assert counts[token] / 1000 == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}])
async def test_the_likeliest_token_where_nothing_else_is_left(sampler: HFSampler, policy: str, params: dict[str, Any]) -> None:
    [sequence] = (await sampler.sample(base(policy), call([1, 2, 3], **params))).sequences
    text = [1, 2, 3]
    for token in sequence.tokens:
        assert token == model_of(policy)(input_ids=torch.tensor([text])).logits[0, -1].argmax().item()
        text.append(token)


async def test_the_end_token_of_the_model_ends_a_sequence(sampler: HFSampler, ending_policy: str) -> None:
    response = await sampler.sample(base(ending_policy), call([1, 2], 32, max_tokens=40, stop=None, seed=0))
    ended = [sequence for sequence in response.sequences if sequence.stop_reason == "stop"]
    assert len(ended) > 16
    for sequence in response.sequences:
        assert (sequence.tokens[-1] == 3) == (sequence.stop_reason == "stop")
        assert 3 not in sequence.tokens[:-1]
        assert sequence.logprobs is not None
        assert len(sequence.logprobs) == len(sequence.tokens)


async def test_an_empty_stop_disables_the_end_token_too(sampler: HFSampler, ending_policy: str) -> None:
    response = await sampler.sample(base(ending_policy), call([1, 2], 16, max_tokens=40, stop=[], seed=0))
    assert {len(tokens) for tokens in tokens_of(response)} == {40}
    assert any(3 in tokens[:-1] for tokens in tokens_of(response))


async def test_a_text_that_is_spread_over_tokens_ends_a_sequence(sampler: HFSampler, writer: str) -> None:
    snapshot = base(writer)
    free = (await sampler.sample(snapshot, call([5, 6, 7], max_tokens=40, seed=3))).sequences[0]
    text = tokenizer().decode(free.tokens[10:13])
    stopped = (await sampler.sample(snapshot, call([5, 6, 7], max_tokens=40, seed=3, stop=["never written §", text]))).sequences[
        0
    ]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert text in tokenizer().decode(stopped.tokens)
    assert text not in tokenizer().decode(stopped.tokens[:-1])


async def test_without_max_tokens_a_sequence_fills_the_context(sampler: HFSampler, policy: str) -> None:
    [tokens] = tokens_of(await sampler.sample(base(policy), call([1] * 50, max_tokens=None)))
    assert len(tokens) == CONTEXT - 50
    [tokens] = tokens_of(await sampler.sample(base(policy), call([1] * 50, max_tokens=1000)))
    assert len(tokens) == CONTEXT - 50


async def test_a_prompt_as_long_as_the_context_is_scored(sampler: HFSampler, policy: str) -> None:
    prompt = [token % VOCABULARY for token in range(CONTEXT)]
    response = await sampler.sample(base(policy), call(prompt, max_tokens=1, prompt_scores=True))
    assert response.prompt_logprobs is not None
    assert response.prompt_logprobs[1:] == pytest.approx(scores_of(policy, prompt), abs=1e-5)


async def test_prompts_of_different_lengths_are_scored_together(sampler: HFSampler, policy: str) -> None:
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8, 9], [10]]
    calls = [call(prompt, 2, prompt_scores=True, top=2) for prompt in prompts]
    for prompt, response in zip(prompts, await sampled_together(sampler, base(policy), *calls), strict=True):
        assert response.prompt_logprobs is not None
        assert response.topk_prompt_logprobs is not None
        assert response.prompt_logprobs[0] is None
        assert response.prompt_logprobs[1:] == pytest.approx(scores_of(policy, prompt), abs=1e-5)
        assert [None if top is None else len(top) for top in response.topk_prompt_logprobs] == [None, *[2] * (len(prompt) - 1)]


async def test_the_likeliest_tokens_come_with_each_token(sampler: HFSampler, policy: str) -> None:
    wide, narrow = await sampled_together(sampler, base(policy), call([1], top=VOCABULARY, max_tokens=2), call([1], top=1))
    [sequence] = wide.sequences
    assert sequence.topk_logprobs is not None
    for token, logprob, top in zip(sequence.tokens, sequence.logprobs or [], sequence.topk_logprobs, strict=True):
        assert top is not None
        assert dict(top)[token] == pytest.approx(logprob)
        assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
    assert [len(top or []) for top in narrow.sequences[0].topk_logprobs or []] == [1] * 4
    assert narrow.topk_prompt_logprobs is None


async def test_snapshots_are_sampled_each_by_its_own_weights(sampler: HFSampler, policy: str, tmp_path: Path) -> None:
    other = tiny_policy(tmp_path, seed=5, initializer_range=0.2)
    snapshots = {
        "memory": Snapshot("memory", policy, weights=model_of(other).state_dict()),
        "directory": Snapshot("directory", policy, weights=tmp_path),
        "base": Snapshot("base", policy),
    }
    scored = call([1, 2, 3, 4], prompt_scores=True)
    async with asyncio.TaskGroup() as group:  # at once, so that they go on by turns
        tasks = {name: group.create_task(sampler.sample(snapshot, scored)) for name, snapshot in snapshots.items()}
    for name, task in tasks.items():
        expected = scores_of(policy if name == "base" else other, [1, 2, 3, 4])
        assert (task.result().prompt_logprobs or [])[1:] == pytest.approx(expected, abs=1e-5)


async def test_a_snapshot_that_was_dropped_is_loaded_again(policy: str) -> None:
    sampler = HFSampler(HFSamplerSettings(device="cpu", max_snapshots=1))
    weights = model_of(policy).state_dict()
    scored = call([1, 2, 3], prompt_scores=True)
    for name in ("a", "b", "a"):
        response = await sampler.sample(Snapshot(name, policy, weights=weights), scored)
        assert (response.prompt_logprobs or [])[1:] == pytest.approx(scores_of(policy, [1, 2, 3]), abs=1e-5)
    await sampler.close()


async def test_weights_that_are_tied_may_be_named_once(sampler: HFSampler, tmp_path: Path) -> None:
    base_path = tiny_policy(tmp_path / "base", tie_word_embeddings=True)
    tuned = tiny_policy(tmp_path / "tuned", seed=1, tie_word_embeddings=True)
    weights = without_head(dict(model_of(tuned).state_dict()))
    response = await sampler.sample(Snapshot("tuned", base_path, weights=weights), call([1, 2, 3], prompt_scores=True))
    assert (response.prompt_logprobs or [])[1:] == pytest.approx(scores_of(tuned, [1, 2, 3]), abs=1e-5)


async def test_sampling_leaves_the_weights_that_it_was_given_as_they_are(sampler: HFSampler, policy: str) -> None:
    weights = {name: tensor.clone() for name, tensor in model_of(policy).state_dict().items()}
    await sampler.sample(Snapshot("a", policy, weights=weights), call([1]))
    assert all(torch.equal(weights[name], tensor) for name, tensor in model_of(policy).state_dict().items())
    assert not any(tensor.requires_grad for tensor in weights.values())


def without_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}


async def test_one_call_too_many_is_refused_and_the_others_are_answered(policy: str) -> None:
    sampler = HFSampler(HFSamplerSettings(device="cpu", max_waiting=2))
    await sampler.sample(base(policy), call([1]))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sampler.sample(base(policy), call([1], max_tokens=40))) for _ in range(2)]
        await asyncio.sleep(0)  # both are on their way
        with pytest.raises(RequestFailedError, match="2 calls wait for the sampler, which is its limit"):
            await sampler.sample(base(policy), call([1]))
    assert all(task.result().sequences for task in tasks)
    assert (await sampler.sample(base(policy), call([1]))).sequences
    await sampler.close()


async def test_what_is_cancelled_leaves_the_batch_and_the_others_go_on(sampler: HFSampler, policy: str) -> None:
    async with asyncio.TaskGroup() as group:
        kept = group.create_task(sampler.sample(base(policy), call([1, 2], 2, seed=4, max_tokens=40)))
        dropped = group.create_task(sampler.sample(base(policy), call([1, 2], 64, max_tokens=60)))
        await asyncio.sleep(0)
        dropped.cancel()
    assert dropped.cancelled()
    assert tokens_of(kept.result()) == tokens_of(await sampler.sample(base(policy), call([1, 2], 2, seed=4, max_tokens=40)))


async def test_closing_fails_what_waits_and_what_comes(policy: str) -> None:
    sampler = HFSampler(HFSamplerSettings(device="cpu"))
    await sampler.sample(base(policy), call([1]))
    waiting = asyncio.ensure_future(sampler.sample(base(policy), call([1] * 4, 512, max_tokens=60)))
    await asyncio.sleep(0)
    await sampler.close()
    with pytest.raises(RequestFailedError, match="the sampler is closed"):
        await waiting
    with pytest.raises(RequestFailedError, match="the sampler is closed"):
        await sampler.sample(base(policy), call([1]))
    await sampler.close()
