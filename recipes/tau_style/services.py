"""The service model (the customer) and the judge, as functions of this process; run.py can put language models in their place."""

from __future__ import annotations

from typing import Any, TypedDict


class Said(TypedDict):
    """What the customer says."""

    text: str


class Verdict(TypedDict):
    """What the judge says."""

    score: float
    reasoning: str


def service_model(persona: str, wants: str, order: str, conversation: list[dict[str, str]], instruction: str) -> Said:
    """Answer as the customer would. It remembers nothing: all that it knows is the conversation, which comes with every call."""
    del instruction
    answers = [turn["content"] for turn in conversation if turn["role"] == "assistant"]
    if not answers:
        return Said(text=f"Hello, this is {persona.split(',')[0]}. I would like to {wants}.")
    if "number" in answers[-1] and not any(order in turn["content"] for turn in conversation if turn["role"] == "user"):
        return Said(text=f"It is {order}.")
    if "insists" in persona and "can't" in answers[-1]:
        return Said(text="Please, just this once!")
    return Said(text="Thank you, goodbye.")


def judge_conversation(conversation: list[dict[str, str]], policy: str) -> Verdict:
    """Judge how the agent spoke: politely, and with the reason for a refusal."""
    del policy
    said = " ".join(turn["content"] for turn in conversation if turn["role"] == "assistant").lower()
    polite = any(word in said for word in ("please", "thank", "sorry", "gladly"))
    explained = "can't" not in said or "because" in said
    reasons = [text for text, good in (("impolite", polite), ("a refusal without a reason", explained)) if not good]
    return Verdict(score=(polite + explained) / 2, reasoning=", ".join(reasons) or "polite and clear")


TOOLS: dict[str, Any] = {"service_model": service_model, "judge_conversation": judge_conversation}
