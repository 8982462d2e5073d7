"""Trains a tiny model with checkpoints and kills itself: python -m tests.training.interrupted DIRECTORY MODE STEP."""

from __future__ import annotations

import os
import signal
import sys

import torch

from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.settings import TrainingSettings
from reward_loop.training.trainer import Step, train_reward_model
from reward_loop.training.training_modes import trained_by
from tests.training.models import pairs, tiny_model

SETTINGS = TrainingSettings(steps=9, batch_pairs=8, learning_rate=1e-2, warmup_steps=2, checkpoint_every=3, evaluate_every=2)


def die_after(step: Step) -> None:
    if step.number == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = trained_by(tiny_model(attention_dropout=0.2), RewardModelTrainingMode(sys.argv[2]))
    train_reward_model(model, pairs(30), SETTINGS, held_out=pairs(9, seed=1), checkpoints=sys.argv[1], on_step=die_after)
