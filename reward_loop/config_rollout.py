"""The settings of the engine that serves a reward model, under verl's names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from reward_loop.config_base import Config, Count, Share


class RolloutConfig(Config):
    """How the reward model is served."""

    name: str = "vllm"
    """Inference engine."""
    dtype: str = "bfloat16"
    """Type of weights and activations."""
    gpu_memory_utilization: Share = 0.5
    """Share of a GPU's memory that the engine may take."""
    enforce_eager: bool = True
    """Run without CUDA graphs."""
    free_cache_engine: bool = True
    """Put colocated servers to sleep between batches."""
    data_parallel_size: Count = 1
    """Copies of the model in one replica."""
    expert_parallel_size: Count = 1
    """GPUs over which experts are spread."""
    tensor_model_parallel_size: Count = 2
    """GPUs over which each layer is split."""
    pipeline_model_parallel_size: Count = 1
    """Stages into which the layers are divided."""
    max_num_batched_tokens: Count = 8192
    """Tokens in one engine step."""
    max_model_len: Count | None = None
    """Longest prompt plus completion in tokens; the model's own limit without it."""
    max_num_seqs: Count = 1024
    """Sequences in one engine step."""
    load_format: str = "auto"
    """How the engine reads the weights."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """Order in which the engine takes requests."""
    full_determinism: bool = False
    """Make equal requests give equal bits, at the price of speed."""
    seed: int = 42
    """Seed of the engine."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the engine, by engine name."""
    enable_chunked_prefill: bool = True
    """Split long prompts over several steps."""
    enable_prefix_caching: bool = True
    """Reuse the key-value cache of equal beginnings."""
    skip_tokenizer_init: bool = False
    """Start the engine without a tokenizer."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of a generative reward model."""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """Tokens to sample from; -1 for all."""
    top_p: Share = 1.0
    """Probability mass to sample from."""
    n: Count = 1
    """Completions per request."""
    prompt_length: Count = 2048
    """Tokens of a prompt."""
    response_length: Count = 2048
    """Tokens of a completion."""
    quantization: str | None = None
    """Quantization method."""
    mtp: dict[str, Any] | None = None
    """Multi-token prediction, passed on to the engine."""
    disaggregation: dict[str, Any] = Field(default_factory=dict)
    """Prefill and decode on separate replicas, passed on to the engine."""
