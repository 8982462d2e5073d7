"""The expected score: the mean of the scores that a judge might have given, by their probabilities, from one token.

It tells apart answers that get the same most likely score, and needs no sampling (G-Eval, arXiv:2303.16634).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Unpack

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.scoring.chat import Messages
from reward_loop.scoring.chat_reply import ChatReply
from reward_loop.scoring.judging.asking import Judge, ask

_NONE = -9000.0
"""vLLM writes -9999 for a logarithm of zero."""


class Tokenizer(Protocol):
    """What is needed of `reward_model_tokenizer`."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ...


@dataclass(frozen=True, slots=True)
class ExpectedScore:
    """The mean `score`, the `probabilities` of the labels among themselves, their `mass` among all tokens, and the tokens used.

    A small mass says that the judge would rather have written something else: change the prompt.
    """

    score: float
    probabilities: Mapping[str, float]
    mass: float
    tokens: int


async def expected_score(
    messages: Messages,
    *,
    tokenizer: Tokenizer,
    labels: Mapping[str, float] | Sequence[int] = (1, 2, 3, 4, 5),
    sampling: Mapping[str, object] | None = None,
    **judge: Unpack[Judge],
) -> ExpectedScore:
    """Return the mean over the labels that the judge may write first; `labels` are whole numbers, or texts with their scores.

    The prompt must make the judge answer with a label at once. Raises ConfigError for a label that is not one token of the
    judge, and RewardServerError where no label is possible.
    """
    scores = dict(labels) if isinstance(labels, Mapping) else {str(label): float(label) for label in labels}
    ids = label_ids(tokenizer, scores)
    fixed = {"max_tokens": 1, "n": 1, "logprobs": True, "logprob_token_ids": [*ids.values()], "return_tokens_as_token_ids": True}
    reply = await ask(messages, fixed, sampling, **judge)
    logprobs = _logprobs(reply, ids)
    top = max(logprobs.values())
    weights = {label: math.exp(logprob - top) for label, logprob in logprobs.items()}
    total = math.fsum(weights.values())
    probabilities = {label: weight / total for label, weight in weights.items()}
    mean = math.fsum(scores[label] * share for label, share in probabilities.items())
    return ExpectedScore(mean, probabilities, total * math.exp(top), reply.tokens)


def label_ids(tokenizer: Tokenizer, labels: Mapping[str, float]) -> dict[str, int]:
    """Return the token of each label; ConfigError for labels that are not one token each, all different."""
    if len(labels) < 2 or not all(map(math.isfinite, labels.values())):
        raise ConfigError(f"labels={labels!r:.200} must be at least two, with finite scores")
    tokens = {label: tokenizer.encode(label, add_special_tokens=False) for label in labels}
    if long := {label: ids for label, ids in tokens.items() if len(ids) != 1}:
        raise ConfigError(f"the judge's tokenizer needs other than one token for {long!r:.300}; choose labels of one token each")
    ids = {label: ids[0] for label, ids in tokens.items()}
    if len(set(ids.values())) < len(ids):
        raise ConfigError(f"the judge's tokenizer makes one token of several labels: {ids!r:.300}; choose others")
    return ids


def _logprobs(reply: ChatReply, ids: Mapping[str, int]) -> dict[str, float]:
    """Return the log-probability of each label as the first token."""
    logprobs = reply.choices[0].logprobs
    first = logprobs.content[0] if logprobs and logprobs.content else None
    found = {token.token: token.logprob for token in (first, *first.top_logprobs)} if first else {}
    missing = [label for label, token in ids.items() if f"token_id:{token}" not in found]
    if missing:
        raise RewardServerError(
            f"the judge {reply.model} sent no log-probabilities of {missing}; is it a vLLM server that knows logprob_token_ids?"
        )
    labelled = {label: found[f"token_id:{token}"] for label, token in ids.items()}
    if max(labelled.values()) < _NONE:
        raise RewardServerError(f"the judge {reply.model} can't write any of {list(ids)}: allow them, or change the prompt")
    return labelled
