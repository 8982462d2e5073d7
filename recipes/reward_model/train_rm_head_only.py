"""Trains the head of a reward model, and nothing else: python -m recipes.reward_model.train_rm_head_only DIRECTORY.

Fast, and enough where the body's representations hold what is preferred already; a body of random weights hardly does.
"""

from __future__ import annotations

from recipes.reward_model.training_run import main
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.settings import TrainingSettings

SETTINGS = TrainingSettings(steps=100, batch_pairs=32, learning_rate=1e-2, evaluate_every=25, checkpoint_every=50)

if __name__ == "__main__":
    main(RewardModelTrainingMode.HEAD_ONLY, SETTINGS)
