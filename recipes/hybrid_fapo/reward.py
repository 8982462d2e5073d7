r"""The hybrid reward of FAPO (arXiv:2510.22543): a rule, and a judge that looks for flaws in what the rule takes as right.

    R = R_rule + R_flaw
    R_rule = +1 if the last \boxed{} is the ground truth, else -1
    R_flaw = -penalty if it is, but was reached by a wrong step, else 0

The judge is asked only where its answer can matter: for correct training samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedTokenizerBase

from reward_loop import chat_complete
from reward_loop.errors import DataError, RewardFunctionError
from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.latex_answer import last_boxed
from reward_loop.functions.math_dapo import minerva_form
from reward_loop.scoring.chat_reply import ChatReply

JUDGE_PROMPT = """\
Below are a math problem, its answer, and a solution in numbered paragraphs that ends with this answer.
A right answer can be reached by wrong steps.

Problem:
{problem}

Answer:
{ground_truth}

Solution:
{paragraphs}

Check the paragraphs one by one.
Then put the number of the first paragraph with an error into \\boxed{{}}, or -1 if there is none."""

SAMPLING_PARAMS = {"temperature": 0.7, "top_p": 0.8, "max_tokens": 16384}
NO_ERROR = -1

_JUDGE_TIMEOUT_S = 240.0  # less than reward_model.timeout_s: then the error says who was late
_TAIL_CHARS = 300
_NUMBER = re.compile(r"-?[0-9]{1,6}")


async def compute_score_fapo(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    reward_router_address: str,
    reward_model_tokenizer: PreTrainedTokenizerBase,
    penalty: float = 1.0,
    sampling_params: Mapping[str, Any] = SAMPLING_PARAMS,
) -> dict[str, Any]:
    """Return R and its parts; the judge's failure is this sample's failure, never "not flawed".

    `extra_info` holds `split` ("train" is judged, every other one is not) and, where it is judged, the problem as `question`.
    `penalty` and `sampling_params` come from `reward_kwargs`.
    """
    correct, pred = by_rule(solution_str, ground_truth)
    if not correct or not is_training(extra_info):
        return _result(correct, pred)
    paragraphs = solution_str.strip().split("\n\n")
    prompt = JUDGE_PROMPT.format(problem=extra_info["question"], ground_truth=ground_truth, paragraphs=_numbered(paragraphs))
    reply = await chat_complete(
        router_address=reward_router_address,
        chat_complete_request={"messages": [{"role": "user", "content": prompt}], **sampling_params},
        timeout_s=_JUDGE_TIMEOUT_S,
    )
    return _result(correct, pred, penalty, parse_first_error(reply, len(paragraphs)), judge_calls=1)


def by_rule(solution_str: str, ground_truth: str) -> tuple[bool, str | None]:
    r"""Return whether the last \boxed{} near the end is the ground truth, and its normal form; None without one."""
    boxed = last_boxed(solution_str[-_TAIL_CHARS:])
    pred = None if boxed is None else minerva_form(boxed)
    return bool(pred) and pred == minerva_form(truth_text(ground_truth)), pred


def is_training(extra_info: Mapping[str, Any]) -> bool:
    """Return whether the sample is one of training; DataError where it does not say."""
    if not isinstance(split := extra_info.get("split"), str):
        raise DataError(f"extra_info['split'] is {split!r}; set it to train, or to test for samples that are never judged")
    return split == "train"


def parse_first_error(reply: ChatReply, paragraphs: int) -> int:
    """Return the number of the first wrong paragraph, or -1; RewardFunctionError where the judge gave no usable one."""
    if reply.finish_reason == "length":
        raise RewardFunctionError(f"the judge was cut off before its verdict: …{reply.text[-100:]!r}; raise max_tokens")
    boxed = last_boxed(reply.text)
    if boxed is None or not _NUMBER.fullmatch(boxed):
        raise RewardFunctionError(f"the judge boxed no number but {boxed!r:.50}, in …{reply.text[-100:]!r}")
    if not NO_ERROR <= int(boxed) < paragraphs:
        raise RewardFunctionError(f"the judge found an error in paragraph {boxed}, but there are 0 to {paragraphs - 1}")
    return int(boxed)


def _result(
    correct: bool, pred: str | None, penalty: float = 0.0, first_error: int | None = None, judge_calls: int = 0
) -> dict[str, Any]:
    """Return the reward; `first_error` None means that nobody has looked for one."""
    flawed = None if first_error is None else first_error != NO_ERROR
    return {
        "score": (1.0 if correct else -1.0) - (penalty if flawed else 0.0),
        "acc": correct,
        "pred": pred,
        "is_flawed_positive": flawed,
        "first_error": first_error,
        "judge_calls": judge_calls,
    }


def _numbered(paragraphs: list[str]) -> str:
    return "\n\n".join(f"<paragraph_{number}>\n{text}\n</paragraph_{number}>" for number, text in enumerate(paragraphs))
