"""Tokenizers with the chat templates of the families, in short versions of our own that write the same."""

from __future__ import annotations

import functools
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN25 = (
    "{% if messages[0].role != 'system' %}"
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

QWEN2 = QWEN25.replace("You are Qwen, created by Alibaba Cloud. You are", "You are")

QWEN3 = (
    "{% set seen = namespace(query=messages|length - 1, looking=true) %}"
    "{% for message in messages[::-1] %}"
    "{% if seen.looking and message.role == 'user' and not (message.content.startswith('<tool_response>') "
    "and message.content.endswith('</tool_response>')) %}"
    "{% set seen.looking = false %}{% set seen.query = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
    "{% elif message.role == 'assistant' %}"
    "{% set thoughts, said = '', message.content %}"
    "{% if message.reasoning_content is string %}{% set thoughts = message.reasoning_content %}"
    "{% elif '</think>' in message.content %}"
    "{% set thoughts = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
    "{% set said = message.content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{% if loop.index0 > seen.query and (loop.last or thoughts) %}"
    "{% set said = '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + said.lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>assistant\n' + said + '<|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)

QWEN3_WITHOUT_THINKING = QWEN3.replace("enable_thinking is defined and enable_thinking is false", "true")

_LLAMA_TURN = (
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)

LLAMA3 = "{{ bos_token }}{% for message in messages %}" + _LLAMA_TURN

LLAMA31 = (
    "{% set system, rest = '', messages %}"
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}{% endif %}"
    "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{ 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' + system + '<|eot_id|>' }}"
    "{% for message in rest %}" + _LLAMA_TURN
)

TEMPLATES = {
    "chatml": CHATML,
    "qwen2": QWEN2,
    "qwen2.5": QWEN25,
    "qwen3": QWEN3,
    "qwen3_disable_thinking": QWEN3_WITHOUT_THINKING,
    "llama3": LLAMA3,
    "llama3.1": LLAMA31,
}

_QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_LLAMA_SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Both families keep line breaks that follow each other in one piece."""
_CORPUS = ["What is six times seven?\n\nThe answer  is 42.\n\n\n", "user\nassistant\nsystem\n<think>\n\n</think>\n\n Der Fuchs"]


@functools.cache
def tokenizer_of(family: str) -> Any:
    """A byte-level BPE with the control tokens and the chat template of a family; it merges line breaks, as theirs do."""
    from transformers import PreTrainedTokenizerFast

    special = _LLAMA_SPECIAL if family.startswith("llama") else _QWEN_SPECIAL
    bpe = Tokenizer(models.BPE())
    bytes_only: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_WORDS), "isolated"), bytes_only])
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(_CORPUS * 4, trainer)
    fast: Any = PreTrainedTokenizerFast  # untyped
    tokenizer = fast(
        tokenizer_object=bpe,
        bos_token=special[0] if family.startswith("llama") else None,
        eos_token=special[1] if family.startswith("llama") else special[0],
        additional_special_tokens=special[1:],
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATES[family],
    )
    if family.startswith("qwen3"):
        tokenizer.add_tokens(["<think>", "</think>"])  # tokens, as in Qwen 3, but no control tokens
    return tokenizer
