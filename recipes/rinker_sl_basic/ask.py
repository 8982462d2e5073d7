"""Asks what a run has trained the questions that it has never seen: python -m recipes.rinker_sl_basic.ask RUN."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from reward_loop import rinker
from reward_loop.rinker.loops.json_rows import read_rows
from reward_loop.rinker.loops.run_log import read_checkpoints
from reward_loop.rinker.rendering import get_renderer
from reward_loop.rinker.types import SamplingParams

Answer = tuple[str, str, str]
"""Question, answer, and what the answer should be."""


def answers(run: Path, sampler: rinker.SamplingClient) -> list[Answer]:
    """Return the model's answers to the held-out questions, each the likeliest one."""
    renderer = get_renderer("chatml", sampler.get_tokenizer())
    params = SamplingParams(max_tokens=48, temperature=0.0, stop=renderer.get_stop_sequences())
    held_out = [row["messages"] for row in read_rows(run / "held_out.jsonl")]
    asked = [sampler.sample(renderer.build_generation_prompt(messages[:1]), 1, params) for messages in held_out]
    said = [renderer.parse_response(one.result().sequences[0].tokens)[0]["content"] for one in asked]
    return [(messages[0]["content"], answer, messages[1]["content"]) for messages, answer in zip(held_out, said, strict=True)]


def ask(run: Path) -> dict[str, list[Answer]]:
    """Return the answers of the model before the training and of the run's last checkpoint."""
    with rinker.ServiceClient(checkpoint_dir=run / "weights") as service:
        before = service.create_sampling_client(base_model=str(run / "model")).result()
        after = service.create_sampling_client(model_path=read_checkpoints(run)[-1].sampler_path).result()
        return {"before": answers(run, before), "after": answers(run, after)}


def main() -> None:
    """Print some answers, and how many are right."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    found = ask(Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)))
    table = Table("question", "before", "after")
    for (question, before, _), (_, after, _) in list(zip(found["before"], found["after"], strict=True))[:8]:
        table.add_row(question, repr(before)[:30], after)
    Console().print(table)
    for name, rows in found.items():
        print(f"{name}: {sum(answer == wanted for _, answer, wanted in rows)} of {len(rows)} right")


if __name__ == "__main__":
    main()
