"""Training reward models on preferences: data, losses, the loop, and checkpoints, on transformers and peft."""
