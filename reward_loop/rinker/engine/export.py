"""Checkpoints as what others load: adapters for peft, or a plain model for transformers and vLLM."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checkpoint import MODEL_FOLDER, read_checkpoint
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.loading import load_tokenizer
from reward_loop.rinker.engine.settings import EngineSettings, Precision
from reward_loop.rinker.engine.unfinished import unfinished_prefix
from reward_loop.sync.key_names import is_head
from reward_loop.training.reward_model import plain_model


def export_model(
    checkpoint: Path,
    out: Path,
    *,
    merge: bool = True,
    base_model: str | None = None,
    dtype: Precision | None = None,
    trust_remote_code: bool = False,
) -> Path:
    """Write what a checkpoint holds to the directory `out`, with its tokenizer, and return that; it is there whole or not at all.

    `merge`: a plain Hugging Face model, adapters merged in; otherwise the adapters alone (adapter_model.safetensors and
    adapter_config.json), as peft loads them. `base_model` says where the model that was trained on lies now; `dtype` is that of
    the merged weights, by default the base model's own (a reward model's head stays float32).

    Raises RequestFailedError ("user") where `out` holds something already, and for adapters of a model that has none; as
    `read_checkpoint` for the checkpoint.
    """
    if out.exists() and any(out.iterdir()):
        raise RequestFailedError(f"{out} is not empty; give another directory", category="user")
    spec = read_checkpoint(checkpoint).spec
    if spec.lora is None and not merge:
        raise RequestFailedError(
            f"{checkpoint} has no adapters: the whole model was trained; export it with merge=True", category="user"
        )
    spec = spec if base_model is None else replace(spec, base_model=base_model)
    engine = Engine(spec, EngineSettings(device="cpu", trust_remote_code=trust_remote_code))
    engine.load(checkpoint, optimizer=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=unfinished_prefix(), dir=out.parent))
    try:
        _save(engine, folder, getattr(torch, dtype) if dtype else _own_dtype(spec.base_model, trust_remote_code), merge=merge)
        tokenizer = load_tokenizer(checkpoint / MODEL_FOLDER, trust_remote_code=trust_remote_code)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        folder.chmod(0o755)  # as mkdir makes them, not as mkdtemp does
        folder.replace(out)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        raise RequestFailedError(f"the model can't be written to {out}: {error}", category="server") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return out


def _save(engine: Engine, folder: Path, dtype: torch.dtype, *, merge: bool) -> None:
    model: Any = engine.model
    if not merge:
        # peft would write the whole unembedding beside its adapter, which nobody has changed.
        model.save_pretrained(folder, save_embedding_layers=False)
        return
    weights = {name: value if is_head(name) else value.to(dtype) for name, value in engine.weights().items()}
    plain: Any = plain_model(model)
    more: dict[str, Any] = {} if engine.spec.lora is None else {"save_peft_format": False}
    plain.save_pretrained(folder, state_dict=weights, **more)
    plain.config.dtype = dtype  # transformers has written that of the model in memory
    plain.config.save_pretrained(folder)


def _own_dtype(base_model: str, trust_remote_code: bool) -> torch.dtype:
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(base_model, trust_remote_code=trust_remote_code)
    found = config.dtype
    return found if isinstance(found, torch.dtype) else torch.float32
