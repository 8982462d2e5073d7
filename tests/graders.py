"""Reward functions for processes of their own, which import this file: so it imports little."""

from __future__ import annotations

import os
import threading
import time
from typing import Any


def where(solution_str: str) -> dict[str, Any]:
    """Say where it runs; "raise" and "wait" do that."""
    if solution_str == "raise":
        raise ValueError("boom")
    if solution_str == "wait":
        time.sleep(0.3)
    return {"score": float(len(solution_str)), "pid": os.getpid(), "thread": threading.current_thread().name}
