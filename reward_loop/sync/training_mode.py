"""Which part of a reward model is trained, and so which weights an update holds (seeds 000 and 001)."""

from __future__ import annotations

from enum import StrEnum


class RewardModelTrainingMode(StrEnum):
    """HEAD_ONLY: the head alone. LORA: the head, and the backbone with its adapters merged. FULL: every weight."""

    HEAD_ONLY = "head_only"
    LORA = "lora"
    FULL = "full"
