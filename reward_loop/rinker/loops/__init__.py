"""What the three training loops (sl, rl, rm) share: settings, progress, metrics and checkpoints."""
