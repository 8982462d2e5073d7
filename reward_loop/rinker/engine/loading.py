"""From a ModelSpec to a model that can be trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from reward_loop.errors import RequestFailedError, TrainingError
from reward_loop.rinker.engine.checking import Limits
from reward_loop.rinker.engine.lora import adapted
from reward_loop.rinker.engine.modes import DRAWING
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.loading_lock import LOADING
from reward_loop.rinker.types import ModelSpec
from reward_loop.rinker.types.model_spec import ModelKind
from reward_loop.training.reward_model import load_reward_model, plain_model

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def load_model(spec: ModelSpec, settings: EngineSettings) -> nn.Module:
    """Load the model on its device, with adapters if the spec has any, in training mode.

    Raises RequestFailedError ("user") for what can't be loaded.
    """
    with LOADING, DRAWING:  # new adapters and heads are drawn from a seed
        return _loaded(spec, settings)


def _loaded(spec: ModelSpec, settings: EngineSettings) -> nn.Module:
    device = chosen_device(settings.device)
    try:
        model = _plain(spec, settings).to(device)
        if settings.attention is not None:
            chosen: Any = model
            chosen.set_attn_implementation(settings.attention)
    except (OSError, ValueError, RuntimeError, ImportError, TrainingError) as error:
        raise RequestFailedError(f"{spec.base_model} can't be loaded as {spec.kind}: {error}", category="user") from error
    if not settings.dropout:
        _without_dropout(model)
    if settings.gradient_checkpointing:
        checkpointed: Any = model
        checkpointed.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if spec.lora is not None:
        model = adapted(model, spec.kind, spec.lora, _seed(spec, settings))
    return model.train()


def chosen_device(name: str) -> torch.device:
    """Return the device; RequestFailedError ("server") for one that torch does not know or that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RequestFailedError(f"device={name!r} is none that torch knows: {error}", category="server") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RequestFailedError(
            f"device={name!r}, and this process sees {torch.cuda.device_count()} GPUs; use cpu or another", category="server"
        )
    return device


def limits_of(model: nn.Module, kind: ModelKind, settings: EngineSettings) -> Limits:
    """Return what the model can read."""
    config: Any = plain_model(model).config
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    known = [length for length in (positions, settings.max_length) if length is not None]
    labels = int(config.num_labels) if kind == "seq_cls" else 0
    return Limits(int(text.vocab_size), min(known) if known else None, labels)


def load_tokenizer(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Return the tokenizer that lies beside a model, or None where there is none."""
    from transformers import AutoTokenizer

    if Path(source).is_dir() and not any((Path(source) / name).exists() for name in _TOKENIZER_FILES):
        return None  # transformers would make an empty one up
    try:
        return AutoTokenizer.from_pretrained(str(source), trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError):  # what transformers raises where there is none differs from model to model
        return None


def _plain(spec: ModelSpec, settings: EngineSettings) -> nn.Module:
    if spec.kind == "seq_cls":
        return load_reward_model(
            spec.base_model,
            labels=spec.num_labels,
            dtype=settings.weights,
            pad_token_id=_padding(spec, settings),
            seed=_seed(spec, settings),
            trust_remote_code=settings.trust_remote_code,
        )
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_pretrained(
        spec.base_model, dtype=getattr(torch, settings.weights), trust_remote_code=settings.trust_remote_code
    )
    return model


def _padding(spec: ModelSpec, settings: EngineSettings) -> int | None:
    """Return the padding token that the model's own configuration lacks."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(spec.base_model, trust_remote_code=settings.trust_remote_code)
    if config.get_text_config().pad_token_id is not None:
        return None
    tokenizer = load_tokenizer(spec.base_model, trust_remote_code=settings.trust_remote_code)
    found: int | None = None if tokenizer is None else tokenizer.pad_token_id
    return found


def _seed(spec: ModelSpec, settings: EngineSettings) -> int:
    return settings.seed if spec.seed is None else spec.seed


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
