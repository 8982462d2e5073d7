"""The engine: one model in training on transformers and peft, its checkpoints and exports."""
