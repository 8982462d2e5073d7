"""Trains adapters and the head of a reward model: python -m recipes.reward_model.train_rm_lora DIRECTORY.

Servers get the body with the adapters merged into a copy; those in training stay as they are.
"""

from __future__ import annotations

from recipes.reward_model.training_run import main
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.settings import TrainingSettings
from reward_loop.training.training_modes import LoraSettings

SETTINGS = TrainingSettings(steps=250, batch_pairs=32, learning_rate=4e-3, evaluate_every=25, checkpoint_every=50)
ADAPTERS = LoraSettings(r=8, alpha=16.0)

if __name__ == "__main__":
    main(RewardModelTrainingMode.LORA, SETTINGS, ADAPTERS)
