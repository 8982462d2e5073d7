"""Trains reward models one after the other: python -m tests.recipes.reward_model_runs DIRECTORY MODE:SEED …

Each goes to DIRECTORY/MODE-SEED as the recipe of its mode would have it; prints one line of JSON for each.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from transformers.utils import logging

from recipes.reward_model import train_rm_full, train_rm_head_only, train_rm_lora
from recipes.reward_model.training_run import letters_data, trained, write
from reward_loop.sync.training_mode import RewardModelTrainingMode

SETTINGS = {
    RewardModelTrainingMode.HEAD_ONLY: (train_rm_head_only.SETTINGS, None),
    RewardModelTrainingMode.LORA: (train_rm_lora.SETTINGS, train_rm_lora.ADAPTERS),
    RewardModelTrainingMode.FULL: (train_rm_full.SETTINGS, None),
}


def run(directory: Path, mode: RewardModelTrainingMode, seed: int) -> None:
    settings, lora = SETTINGS[mode]
    target = directory / f"{mode}-{seed}"
    target.mkdir(parents=True)
    data = letters_data(target, seed=seed)
    began = time.process_time()
    done = trained(data, mode, replace(settings, seed=seed), lora=lora, checkpoints=target / "checkpoints", quiet=True)
    cpu_s = time.process_time() - began  # what others do on this machine changes it little
    write(done, target)
    figures = {"mode": mode, "seed": seed, "accuracy": done.accuracy, "cpu_s": cpu_s}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        mode, _, number = name.partition(":")
        run(Path(sys.argv[1]), RewardModelTrainingMode(mode), int(number))
