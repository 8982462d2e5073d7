"""A reward function that asks a generative reward model, behind the router of the reward loop, for a score from 0 to 10."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from reward_loop import chat_complete
from reward_loop.errors import RewardFunctionError
from reward_loop.scoring.chat_reply import ChatReply

GRM_PROMPT_TEMPLATE = """\
You grade the solution of a math problem.

Problem:
{problem}

Solution:
{solution}

Check each step of the solution, and say in one paragraph what is right and what is wrong.
Then leave a line empty and write the score: nothing but a whole number from 0 (useless) to 10 (right in every step)."""

SAMPLING_PARAMS = {"temperature": 0.7, "top_p": 0.8, "max_tokens": 4096}

_JUDGE_TIMEOUT_S = 240.0  # less than reward_model.timeout_s: then the error says who was late
_SCORE = re.compile(r"10|[0-9]")


async def compute_score_gsm8k(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    reward_router_address: str,
    reward_model_tokenizer: PreTrainedTokenizerBase,
    sampling_params: Mapping[str, Any] = SAMPLING_PARAMS,
) -> dict[str, float | int]:
    """Return the judge's score, from 0 to 10; RewardFunctionError where its answer holds none.

    `extra_info["question"]` is the problem. `sampling_params` comes from `reward_kwargs`.
    """
    prompt = GRM_PROMPT_TEMPLATE.format(problem=extra_info["question"], solution=solution_str)
    request = {"messages": [{"role": "user", "content": prompt}], **sampling_params}
    reply = await chat_complete(router_address=reward_router_address, chat_complete_request=request, timeout_s=_JUDGE_TIMEOUT_S)
    return {"score": parse_score(reply), "judge_tokens": reply.tokens}


def parse_score(reply: ChatReply) -> float:
    """Return the number in the last paragraph; RewardFunctionError for anything else, as the judge failed, not the answer."""
    if reply.finish_reason == "length":  # what is left of a number that was cut off may be a number
        raise RewardFunctionError(f"the judge was cut off before its score: …{reply.text[-100:]!r}; raise max_tokens")
    last = reply.text.strip().rpartition("\n\n")[2].strip()
    if not _SCORE.fullmatch(last):
        raise RewardFunctionError(f"the judge's last paragraph is no score from 0 to 10 but {last!r:.200}")
    return float(last)
