"""Tokenizers of reward models as they come: kinds of vocabularies, special tokens and chat templates, made on the spot."""

from __future__ import annotations

import string
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from recipes.tiny_models import tokenizer as qwen

_CORPUS = ["What is six times seven? The answer is 42.", "Let me think: 6 * 7 = 42", "Der Fuchs springt über den Zaun."]

LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
MARKED = "{% for m in messages %}<|Turn|>{{ m['role'] }}: {{ m['content'] | replace('<img>', '') }}<|End|>{% endfor %}"


def llama() -> Any:
    """Byte-level BPE whose post-processor puts a BOS in front; a template that writes one too, and trims."""
    special = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    bpe = _byte_level(special)
    bpe.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    return _fast(bpe, LLAMA_3, bos_token=special[0], eos_token=special[1], additional_special_tokens=special[2:])


def mistral(prepend: str = "first", unigram: bool = False) -> Any:
    """A sentencepiece-like vocabulary, which holds the names of the special tokens; a template that wants turns to alternate."""
    special = ["<unk>", "<s>", "</s>"]
    alphabet = sorted({*string.printable, *"".join(_CORPUS)})
    made: Any = models.Unigram() if unigram else models.BPE(unk_token="<unk>")
    learn: Any = trainers.UnigramTrainer if unigram else trainers.BpeTrainer
    more = {"unk_token": "<unk>"} if unigram else {}
    pieces = Tokenizer(made)
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    pieces.decoder = decoders.Metaspace(prepend_scheme=prepend)
    settings = {"vocab_size": 300, "special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    pieces.train_from_iterator(_CORPUS, learn(**settings, **more))
    return _fast(pieces, MISTRAL, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def marked() -> Any:
    """Lower-casing; turns begin with a token that is not special and end with one that is found after normalization."""
    bpe = _byte_level(["<pad>"])
    bpe.normalizer = normalizers.Lowercase()
    bpe.add_special_tokens([AddedToken("<|End|>", normalized=True, special=True)])
    bpe.add_tokens([AddedToken("<|Turn|>", normalized=False, special=False), AddedToken("<think>", special=False)])
    return _fast(bpe, MARKED, pad_token="<pad>")


def in_python() -> Any:
    """A tokenizer without a Rust one beneath it."""
    tokenizer: Any = ByT5Tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<extra_id_0>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"
    return tokenizer


TOKENIZERS = {
    "qwen": qwen,
    "llama": llama,
    "mistral": mistral,
    "mistral_legacy": lambda: mistral("always"),
    "unigram": lambda: mistral("first", unigram=True),
    "marked": marked,
    "python": in_python,
}


def _byte_level(special: list[str]) -> Any:
    bpe: Any = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    return bpe


def _fast(tokenizer: Any, template: str, **special: Any) -> Any:
    fast: Any = PreTrainedTokenizerFast  # untyped
    return fast(tokenizer_object=tokenizer, chat_template=template, clean_up_tokenization_spaces=False, **special)
