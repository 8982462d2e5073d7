"""Three models under test, written as functions of the conversation so far."""

from __future__ import annotations

import re
from collections.abc import Callable

Conversation = list[dict[str, str]]
Agent = Callable[[Conversation], str]


def careful(conversation: Conversation) -> str:
    """Ask for the number, do what the policy allows, and explain what it does not."""
    order, wish = _order(conversation), conversation[0]["content"]
    if order is None:
        return "Gladly. What is the number of the order, please?"
    if "cancel the kettle" in wish:
        return "I am sorry, I can't do that, because the order was delivered. Thank you for asking."
    return f"Thank you. {_call(wish, order)} It is done."


def curt(conversation: Conversation) -> str:
    """Do the same in few words."""
    order, wish = _order(conversation), conversation[0]["content"]
    if order is None:
        return "Order number?"
    return "I can't do that." if "cancel the kettle" in wish else f"{_call(wish, order)} Done."


def obliging(conversation: Conversation) -> str:
    """Do whatever comes closest, whether or not it was asked for."""
    order, wish = _order(conversation), conversation[0]["content"]
    if order is None:
        return "Gladly. What is the number of the order, please?"
    call = f"CALL return_order({order})" if "kettle" in wish else _call(wish, order)
    return f"Thank you. {call} It is done, gladly."


AGENTS: dict[str, Agent] = {"careful": careful, "curt": curt, "obliging": obliging}


def _order(conversation: Conversation) -> str | None:
    found = re.findall(r"W\d{4}", " ".join(turn["content"] for turn in conversation if turn["role"] == "user"))
    return found[-1] if found else None


def _call(wish: str, order: str) -> str:
    if "sent to" in wish:
        return f"CALL change_address({order}, {wish.split('sent to ')[1].rstrip('.')})"
    return f"CALL {'return' if 'return' in wish else 'cancel'}_order({order})"
