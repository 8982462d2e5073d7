"""The scores that a model in training gives to token ids: those that a server of its weights would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from reward_loop.training.batches import padded
from reward_loop.training.reward_model import head_name, plain_model


def sequence_scores(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Score right-padded rows at their last token: ids and mask [N, T] -> scores [N, L] float32, with gradients.

    The last token is the mask's, where transformers takes the last one that is not the padding token: wherever answers end in a
    token that is the padding token too, as many do in their end of text, it would score another one than a server does.
    """
    plain: Any = plain_model(model)
    body: Any = getattr(plain, plain.base_model_prefix, None)
    if body is None or not hasattr(plain, "score"):  # an encoder, which scores by what it pools
        logits: torch.Tensor = model(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits.float()
    hidden = body(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    last = attention_mask.sum(dim=1) - 1
    scores: torch.Tensor = getattr(plain, head_name(plain))(hidden[torch.arange(len(last), device=last.device), last])
    return scores


@torch.no_grad()
def score_rows(model: nn.Module, rows: Sequence[Sequence[int]], *, batch_rows: int = 256) -> torch.Tensor:
    """Score rows of token ids, in order, without gradients and without dropout: N rows -> scores [N, L] float32 on the CPU.

    The rows are batched by length; the model is left in the mode (train or eval) in which it was.
    """
    plain: Any = plain_model(model)
    pad, device = plain.config.get_text_config().pad_token_id, next(model.parameters()).device
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    found = torch.empty(len(rows), plain.config.num_labels)
    training = model.training
    model.eval()
    try:
        for begin in range(0, len(rows), batch_rows):
            some = order[begin : begin + batch_rows]
            ids, mask = padded([rows[row] for row in some], pad)
            found[torch.tensor(some)] = sequence_scores(model, ids.to(device), mask.to(device)).float().cpu()
    finally:
        model.train(training)
    return found
