"""What transformers makes of a text, to compare a server's scores with."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer


class Reference:
    """A reward model as transformers runs it: the logits (tokens, labels) of one text at a time, in float32."""

    def __init__(self, directory: str) -> None:
        config: Any = AutoConfig.from_pretrained(directory)
        tokens = "TokenClassification" in config.architectures[0]
        loader: Any = AutoModelForTokenClassification if tokens else AutoModelForSequenceClassification
        self._model = loader.from_pretrained(directory, dtype=torch.float32).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(directory)

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self._tokenizer.encode(text))

    @torch.inference_mode()
    def logits(self, given: str | list[int]) -> torch.Tensor:
        """Return the logits at every token."""
        ids = torch.tensor([self.ids(given) if isinstance(given, str) else given])
        return torch.Tensor(self._model.score(self._model.model(ids).last_hidden_state)[0])
