"""How a model is held and computed; what is trained is in its ModelSpec."""

from __future__ import annotations

from typing import Literal

from reward_loop.config_base import Config, Count, NotNegative

Precision = Literal["float32", "bfloat16"]


class EngineSettings(Config):
    """Where and in which precision a model is trained."""

    device: str = "auto"
    """A device of torch, such as `cuda:0` or `cpu`; auto: the first GPU if there is one."""
    weights: Precision = "float32"
    """Type of the model's weights; of trained ones in bfloat16 the optimiser steps float32 copies."""
    autocast: Precision = "float32"
    """bfloat16: multiply matrices in bfloat16 whatever the weights are; losses and log-probabilities are float32 always."""
    micro_batch_tokens: Count = 16_384
    """Tokens, padding included, that are in memory at once; a longer sequence is one of its own."""
    max_length: Count | None = None
    """Tokens up to which a sequence is taken; null for as many as the model has positions."""
    gradient_checkpointing: bool = False
    """Compute activations a second time instead of keeping them."""
    attention: str | None = None
    """Implementation of attention, such as `sdpa`, `eager` or `flash_attention_2`; null for transformers' choice."""
    deterministic: bool = False
    """Use algorithms that give the same result every time, and fail where there is none."""
    dropout: bool = False
    """Keep the model's own dropout; without it trainer and sampler agree on log-probabilities."""
    entropy: bool = True
    """Measure the policy's entropy, which takes one more pass over the logits."""
    seed: NotNegative = 0
    """Of what is drawn where the ModelSpec names no seed, and of dropout."""
    trust_remote_code: bool = False
    """Run code that comes with a model."""
    renderer: str | None = None
    """Name of the renderer that checkpoints say they were trained with, for those who use them: nothing here reads it. Null: the
    chat template of the tokenizer beside the model tells (`renderer_for`)."""
