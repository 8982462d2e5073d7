"""What a checkpoint becomes for others: adapters for peft, a plain model for transformers, and both compute the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.export import export_model
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from reward_loop.rinker.types.model_spec import ModelKind
from tests.rinker.engine.models import names, pairs, supervised, write_language_model, write_reward_model

IDS = torch.tensor([[2, 3, 4, 5]])
LORA = LoraConfig(rank=4)
AUTO: dict[str, Any] = {"causal_lm": AutoModelForCausalLM, "seq_cls": AutoModelForSequenceClassification}


def trained(model: Path, kind: ModelKind, lora: LoraConfig | None) -> Engine:
    engine = Engine(ModelSpec(str(model), kind=kind, lora=lora), EngineSettings(device="cpu"))
    for _ in range(3):
        if kind == "causal_lm":
            engine.forward_backward(supervised(4), "cross_entropy")
        else:
            engine.forward_backward(pairs(4), "bradley_terry")
        engine.optim_step(AdamParams(1e-2))
    engine.model.eval()
    return engine


def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS).logits.detach()
    return found


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["causal_lm", "seq_cls"])
def test_a_merged_model_is_a_plain_one(tmp_path: Path, kind: ModelKind, lora: LoraConfig | None) -> None:
    write = {"causal_lm": write_language_model, "seq_cls": write_reward_model}[kind]
    engine = trained(write(tmp_path / "base"), kind, lora)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    out = export_model(tmp_path / "checkpoint", tmp_path / "out")
    assert out == tmp_path / "out"
    torch.testing.assert_close(logits(AUTO[kind].from_pretrained(out)), logits(engine.model), atol=1e-5, rtol=1e-5)
    assert not [name for name in names(out) if "adapter" in name]


@pytest.mark.parametrize("kind", ["causal_lm", "seq_cls"])
def test_adapters_are_loaded_by_peft(tmp_path: Path, kind: ModelKind) -> None:
    write = {"causal_lm": write_language_model, "seq_cls": write_reward_model}[kind]
    engine = trained(write(tmp_path / "base"), kind, LORA)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    out = export_model(tmp_path / "checkpoint", tmp_path / "out", merge=False)
    assert {"adapter_model.safetensors", "adapter_config.json"} <= set(names(out))
    loaded = PeftModel.from_pretrained(AUTO[kind].from_pretrained(tmp_path / "base"), out)
    torch.testing.assert_close(logits(loaded), logits(engine.model), atol=1e-6, rtol=1e-6)


def test_tied_embeddings_are_exported_as_one(tmp_path: Path) -> None:
    engine = trained(write_language_model(tmp_path / "base", tie_word_embeddings=True), "causal_lm", LORA)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    out = export_model(tmp_path / "checkpoint", tmp_path / "out")
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(out)), logits(engine.model), atol=1e-5, rtol=1e-5)


def test_the_tokenizer_goes_with_it_and_the_base_model_may_have_moved(tmp_path: Path) -> None:
    engine = trained(write_language_model(tmp_path / "base", with_tokenizer=True), "causal_lm", LORA)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    shutil.move(tmp_path / "base", tmp_path / "moved")
    with pytest.raises(RequestFailedError, match="can't be loaded as causal_lm"):
        export_model(tmp_path / "checkpoint", tmp_path / "out")
    out = export_model(tmp_path / "checkpoint", tmp_path / "out", base_model=str(tmp_path / "moved"))
    text = "What is six times seven?"
    assert AutoTokenizer.from_pretrained(out)(text) == AutoTokenizer.from_pretrained(tmp_path / "moved")(text)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(out)), logits(engine.model), atol=1e-5, rtol=1e-5)


def test_the_type_of_the_weights_is_the_base_models_unless_it_is_given(tmp_path: Path) -> None:
    engine = trained(write_reward_model(tmp_path / "base"), "seq_cls", LORA)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    out = export_model(tmp_path / "checkpoint", tmp_path / "out", dtype="bfloat16")
    assert AutoConfig.from_pretrained(out).dtype == torch.bfloat16
    assert AutoConfig.from_pretrained(export_model(tmp_path / "checkpoint", tmp_path / "same")).dtype == torch.float32


def test_what_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(RequestFailedError, match="out is not empty; give another directory") as caught:
        export_model(tmp_path / "checkpoint", tmp_path / "out")
    assert caught.value.category == "user"


def test_a_model_without_adapters_has_none_to_export(language_model: str, tmp_path: Path) -> None:
    Engine(ModelSpec(language_model), EngineSettings(device="cpu")).save(tmp_path / "checkpoint", optimizer=False)
    with pytest.raises(RequestFailedError, match="has no adapters: the whole model was trained"):
        export_model(tmp_path / "checkpoint", tmp_path / "out", merge=False)
    assert names(tmp_path) == ["checkpoint"]


def test_what_is_no_checkpoint_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="is no checkpoint"):
        export_model(tmp_path / "nothing", tmp_path / "out")
