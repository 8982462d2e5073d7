"""The same game between two models: python -m recipes.rinker_twenty_questions.two_models RUN [key=value …].

The answerer learns the rules first, by supervised learning, and stays as it is; the questioner then plays against it.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from recipes.rinker_twenty_questions.game import (
    FIRST_WORD,
    NO,
    NUMBERS,
    WORDS,
    YES,
    ByModel,
    GamesBuilder,
    answerer_prompt,
    token,
    truth,
    word,
)
from recipes.rinker_twenty_questions.make import make
from reward_loop import rinker
from reward_loop.config_section import load_section
from reward_loop.rinker.loops.observer import RunResult
from reward_loop.rinker.rendering import TinkerTokenCompleter
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl

CONFIG = Path(__file__).with_name("config.yaml")
STEPS = 120


def lessons() -> list[rinker.Datum]:
    """Return every question about every number, special tokens among them, with the right answer."""
    return [_lesson(question, secret) for question, secret in product(range(FIRST_WORD + len(WORDS)), range(NUMBERS))]


def _lesson(question: int, secret: int) -> rinker.Datum:
    prompt = answerer_prompt(question, secret)
    answer = token(YES if truth(word(question), secret) else NO)
    targets = [*prompt.to_ints()[1:], answer]
    weights = [*[0.0] * (prompt.length - 1), 1.0]
    inputs: Any = {"target_tokens": targets, "weights": weights}  # lists become tensors
    return rinker.Datum(model_input=prompt, loss_fn_inputs=inputs)


def taught_answerer(service: rinker.ServiceClient, model: Path) -> rinker.SamplingClient:
    """Teach a model the answers, and return what samples from it."""
    client = service.create_training_client(str(model)).result()
    for _ in range(STEPS):
        client.forward_backward(lessons(), "cross_entropy")
        client.optim_step(rinker.AdamParams(learning_rate=3e-3)).result()
    return client.save_weights_and_get_sampling_client().result()


def summary(result: RunResult) -> str:
    """Say what a run came to; one that was over before has no last games."""
    if "env/all/right" not in result.metrics:
        return f"{result.steps} steps, all of them made before"
    # Not the reward: the questions earn too.
    return f"{result.steps} steps; of the last games {result.metrics['env/all/right']:.0%} were won"


def main() -> None:
    """Teach the answerer, then train the questioner against it as `rinker train rl` would."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    make(run)
    config = load_section(RLConfig, CONFIG, overrides=[f"log_path={run}", *sys.argv[2:]])
    with rinker.ServiceClient(checkpoint_dir=run / "weights") as service:
        answerer = ByModel(TinkerTokenCompleter(taught_answerer(service, run / "model"), max_tokens=1, temperature=0.0))
        data = GamesBuilder(int(config.data.kwargs["batches"]), config.batch_size, config.group_size, answerer)
        result = train_rl(config, service=service, data=data)
    print(summary(result))


if __name__ == "__main__":
    main()
