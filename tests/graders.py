"""Reward functions for processes of their own, which import this file: so it imports little.

The rules stand here because every grader process of the test run takes over whatever rules its driver has registered.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from reward_loop.functions.isolated import isolated
from reward_loop.functions.rules import register_rule

RULES = ["tests/killable", "tests/in_a_thread"]
"""The names of the two rules below."""


def where(solution_str: str) -> dict[str, Any]:
    """Say where it runs; "raise" and "wait" do that."""
    if solution_str == "raise":
        raise ValueError("boom")
    if solution_str == "wait":
        time.sleep(0.3)
    return {"score": float(len(solution_str)), "pid": os.getpid(), "thread": threading.current_thread().name}


def gives_back_its_inputs(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, Any]:
    """Give what it got as extra information."""
    inputs = {"data_source": data_source, "solution_str": solution_str, "ground_truth": ground_truth, "extra_info": extra_info}
    return {"score": 1.0, "inputs": inputs}


@register_rule("tests/killable")
@isolated("process")
def killable(solution_str: str, ground_truth: object) -> dict[str, Any]:
    """Say where a rule runs that asks for a process of its own."""
    return {"score": 1.0, "pid": os.getpid()}


@register_rule("tests/in_a_thread")
def in_a_thread(solution_str: str, ground_truth: object) -> dict[str, Any]:
    """Say where a rule runs that asks for nothing."""
    return {"score": 1.0, "pid": os.getpid()}
