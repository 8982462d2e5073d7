"""Which layers get adapters: attention, MLP and unembedding, found by where they lie in the model.

Invariant: an adapter is never put on one of two tied weights. Where the unembedding is the embedding (`tie_word_embeddings`), it
is left alone, and a line in the log says so: a sampler has one tensor for both.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import LoraConfig
from reward_loop.rinker.types.model_spec import ModelKind
from reward_loop.training.reward_model import head_name

logger = logging.getLogger(__name__)

_ATTENTION = frozenset({"self_attn", "attn", "attention", "self_attention", "linear_attn", "cross_attn"})
_MLP = frozenset({"mlp", "feed_forward", "ffn", "feedforward", "block_sparse_moe", "experts", "shared_expert"})


def adapted(model: nn.Module, kind: ModelKind, lora: LoraConfig, seed: int) -> nn.Module:
    """Put adapters into a plain model and freeze the rest; a reward model's head is trained as a whole.

    `seed` is used where `lora` names none. Raises RequestFailedError ("user") for a rank that makes no sense and where no layer
    is found; "server" without peft.
    """
    try:
        from peft import LoraConfig as PeftConfig
        from peft import get_peft_model
    except ImportError as error:
        raise RequestFailedError(f"LoRA needs peft ({error}): pip install 'reward-loop[train]'", category="server") from error
    if lora.rank < 1 or not lora.alpha > 0:
        raise RequestFailedError(f"a LoRA of rank={lora.rank} and alpha={lora.alpha}; both must be positive", category="user")
    config = PeftConfig(
        task_type="CAUSAL_LM" if kind == "causal_lm" else "SEQ_CLS",
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft multiplies by it; a fraction is fine
        target_modules=lora_targets(model, kind, lora),
        modules_to_save=None if kind == "causal_lm" else [head_name(model)],
    )
    plain: Any = model
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed if lora.seed is None else lora.seed)
        wrapped: nn.Module = get_peft_model(plain, config)
    return wrapped


def lora_targets(model: nn.Module, kind: ModelKind, lora: LoraConfig) -> list[str]:
    """Return the names of the layers to adapt: short ones (`q_proj`) where they are clear, whole paths otherwise."""
    groups = {"attention": lora.train_attn, "mlp": lora.train_mlp}
    linear = {name: _group(name) for name, module in model.named_modules() if _is_linear(module)}
    wanted = [name for name, group in linear.items() if group and groups[group]]
    if missing := [group for group, chosen in groups.items() if chosen and group not in linear.values()]:
        raise _none_found(model, missing)
    if lora.train_unembed and kind == "causal_lm" and (head := _unembedding(model)) is not None:
        wanted.append(head)
    if not wanted:
        raise RequestFailedError(
            "the LoRA trains no layer; set train_attn, train_mlp or train_unembed (which has no effect on a model whose "
            "unembedding is its embedding, and on a reward model, whose head is always trained)",
            category="user",
        )
    return _shortened(wanted, linear)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"  # GPT-2's linear layer is called so


def _group(name: str) -> str | None:
    inside = name.split(".")[:-1]
    for segment in reversed(inside):  # the innermost decides
        if segment in _ATTENTION:
            return "attention"
        if segment in _MLP:
            return "mlp"
    return None


def _unembedding(model: nn.Module) -> str | None:
    plain: Any = model
    head, embedding = plain.get_output_embeddings(), plain.get_input_embeddings()
    if head is None:
        return None
    if head.weight is embedding.weight:
        logger.info("model=%s the unembedding is the embedding: it gets no adapter", type(model).__name__)
        return None
    return next((name for name, module in model.named_modules() if module is head), None)


def _shortened(wanted: list[str], linear: Iterable[str]) -> list[str]:
    chosen = set(wanted)
    others = {name.rpartition(".")[2] for name in linear if name not in chosen}
    leaves = {name.rpartition(".")[2] for name in wanted}
    return sorted(leaves) if leaves.isdisjoint(others) else sorted(wanted)


def _none_found(model: nn.Module, missing: list[str]) -> RequestFailedError:
    names = sorted({name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module)})
    return RequestFailedError(
        f"{type(model).__name__} has no layer that is known as {' or '.join(missing)} (its linear layers are called "
        f"{', '.join(names)}); set train_attn or train_mlp to False, or train the whole model (lora=None)",
        category="user",
    )
