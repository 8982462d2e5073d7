"""Trains every weight of a reward model: python -m recipes.reward_model.train_rm_full DIRECTORY."""

from __future__ import annotations

from recipes.reward_model.training_run import main
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.settings import TrainingSettings

SETTINGS = TrainingSettings(steps=250, batch_pairs=32, learning_rate=3e-3, evaluate_every=25, checkpoint_every=50)

if __name__ == "__main__":
    main(RewardModelTrainingMode.FULL, SETTINGS)
