"""What many tests share: a tiny tokenizer made on the spot, and batches of rollouts as text or as token ids.

transformers, which takes longer to import than all else here, waits for the first tokenizer: workers import this file too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from reward_loop.config import RewardLoopConfig
from reward_loop.data import DataProto

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"
_CORPUS = ["What is six times seven? The answer is 42.", "Let me think: #### 42", "Der Fuchs springt über den Zaun."]


@functools.cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE: any text comes back as it was; `<pad>` and `<eos>` are special."""
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=[PAD, EOS], initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(_CORPUS, trainer)
    fast: Any = PreTrainedTokenizerFast  # untyped
    return cast(
        "PreTrainedTokenizerFast", fast(tokenizer_object=bpe, pad_token=PAD, eos_token=EOS, clean_up_tokenization_spaces=False)
    )


def config_of(**sections: Any) -> RewardLoopConfig:
    """A config with these sections, e.g. `reward_model={"timeout_s": 1.0}`; all else is default."""
    return RewardLoopConfig.model_validate(sections)


def text_batch(texts: Sequence[str], **columns: Any) -> DataProto:
    """Rollouts that came as text. Further columns are added or replace the defaults; None drops one."""
    return DataProto.from_dict(non_tensors=_columns(len(texts), {"solution_str": list(texts), **columns}))


def token_batch(
    texts: Sequence[str],
    tokenizer: Any = None,
    prompts: Sequence[str] | None = None,
    width: int | None = None,
    **columns: Any,
) -> DataProto:
    """The same rollouts as token ids: `prompts` left-padded, `responses` right-padded to `width` and `attention_mask`.

    Every response that is not empty ends with the end-of-sequence token, as those of a policy do.
    """
    tokenizer = tokenizer or tiny_tokenizer()
    asked = [_ids(tokenizer, text) for text in prompts or ["What is six times seven?"] * len(texts)]
    answered = [[*_ids(tokenizer, text), tokenizer.eos_token_id] if text else [] for text in texts]
    prompt_width = max(map(len, asked), default=0)
    width = max(map(len, answered), default=0) if width is None else width
    pad = [tokenizer.pad_token_id]
    mask = [
        [0] * (prompt_width - len(prompt)) + [1] * len(prompt) + [1] * len(ids) + [0] * (width - len(ids))
        for prompt, ids in zip(asked, answered, strict=True)
    ]
    tensors = {
        "prompts": _matrix([pad * (prompt_width - len(ids)) + ids for ids in asked], prompt_width),
        "responses": _matrix([ids + pad * (width - len(ids)) for ids in answered], width),
        "attention_mask": _matrix(mask, prompt_width + width),
    }
    return DataProto.from_dict(tensors=tensors, non_tensors=_columns(len(texts), columns))


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _matrix(rows: Sequence[Sequence[int]], width: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), width)


def _columns(rows: int, given: dict[str, Sequence[object] | None]) -> dict[str, Sequence[object]]:
    columns: dict[str, Sequence[object] | None] = {
        "data_source": ["fake"] * rows,
        "reward_model": [{"ground_truth": f"truth {row}"} for row in range(rows)],
        "extra_info": [{"row": row} for row in range(rows)],
        **given,
    }
    return {name: column for name, column in columns.items() if column is not None}
