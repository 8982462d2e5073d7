"""A policy whose classes lie beside its weights, and a tokenizer of the same kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recipes.tiny_models import judge

_CONFIGURATION = """
from transformers import Qwen2Config

class OwnConfig(Qwen2Config):
    model_type = "own"
"""
_MODEL = """
from torch import nn
from transformers import Qwen2ForCausalLM, Qwen2Model, Qwen2PreTrainedModel

from .configuration_own import OwnConfig

class OwnForCausalLM(Qwen2ForCausalLM):
    config_class = OwnConfig

class OwnForSequenceClassification(Qwen2PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.post_init()
"""
_TOKENIZER = """
from transformers import PreTrainedTokenizerFast

class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


def policy_with_own_code(path: Path) -> str:
    """Write it to a directory, whose name is returned; it computes what `judge` does."""
    judge(path)
    (path / "configuration_own.py").write_text(_CONFIGURATION)
    (path / "modeling_own.py").write_text(_MODEL)
    (path / "tokenization_own.py").write_text(_TOKENIZER)
    classes = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
        "AutoModelForSequenceClassification": "modeling_own.OwnForSequenceClassification",
    }
    _add(path / "config.json", model_type="own", architectures=["OwnForCausalLM"], auto_map=classes)
    tokenizer = {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]}
    _add(path / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=tokenizer)
    return str(path)


def _add(file: Path, **more: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
