"""Ways to ask a generative reward model: for a verdict of a given form, a score, a comparison, or several votes."""
