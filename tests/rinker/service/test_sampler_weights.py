"""What is saved for samplers is what others load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from recipes.tiny_models import judge
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.service.sampler_weights import write_sampler_weights
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.one_thread import one_thread as one_thread


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)])
def test_a_reward_model_on_a_language_model_is_saved_as_the_reward_model_that_it_is(
    lora: LoraConfig | None, tmp_path: Path
) -> None:
    base = judge(tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    engine = Engine(ModelSpec(str(base), "seq_cls", lora, num_labels=3), EngineSettings(device="cpu"))
    write_sampler_weights(engine.weights(), engine.spec, tmp_path / "saved")
    loaded: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert loaded.config.architectures == ["Qwen2ForSequenceClassification"]
    assert loaded.config.pad_token_id == config["pad_token_id"]
    tokens = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert loaded(tokens).logits.shape == (1, 3)
        torch.testing.assert_close(loaded(tokens).logits, engine.model.eval()(tokens).logits)
