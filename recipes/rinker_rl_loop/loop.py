"""The loop of reinforcement learning by hand: sample, score, centre, learn. Nothing but the clients is used.

python -m recipes.rinker_rl_loop.loop RUN                                           # a service of this process
python -m recipes.rinker_rl_loop.loop RUN --base-url URL [--client tinker] [--api-key KEY]   # one that `rinker serve` runs
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
from pathlib import Path
from typing import Any

import torch

from recipes.rinker_rl_basic.copy_digits import DIGITS, share_correct
from recipes.rinker_rl_basic.make import make

PROMPTS, ANSWERS = 16, 16


def train(tinker: Any, client: Any, tokenizer: Any, *, iterations: int, learning_rate: float, seed: int) -> list[float]:
    """Teach a model to repeat three digits; return the mean reward of each iteration. `tinker` is the module of the clients."""
    draw = random.Random(seed)
    means: list[float] = []
    for iteration in range(iterations):
        sampler = client.save_weights_and_get_sampling_client().result()
        digits = ["".join(draw.choices("0123456789", k=DIGITS)) for _ in range(PROMPTS)]
        prompts = [tokenizer.encode(f"<|im_start|>{one}=") for one in digits]
        futures = [
            sampler.sample(
                prompt=tinker.ModelInput.from_ints(prompt),
                num_samples=ANSWERS,
                sampling_params=tinker.SamplingParams(max_tokens=DIGITS, temperature=1.0, stop=[], seed=draw.randrange(2**31)),
            )
            for prompt in prompts
        ]
        data: list[Any] = []
        rewards: list[float] = []
        for one, prompt, future in zip(digits, prompts, futures, strict=True):  # the rest is sampled meanwhile
            answers = future.result().sequences
            scores = [share_correct(tokenizer.decode(answer.tokens, skip_special_tokens=True), one) for answer in answers]
            mean = sum(scores) / len(scores)
            data += [_datum(tinker, prompt, answer, score - mean) for answer, score in zip(answers, scores, strict=True)]
            rewards += scores
        passed = client.forward_backward(data, "importance_sampling")  # both return at once, and run in this order
        stepped = client.optim_step(tinker.AdamParams(learning_rate=learning_rate))
        passed.result()
        stepped.result()
        means.append(sum(rewards) / len(rewards))
        if iteration % 20 == 0 or iteration == iterations - 1:
            print(f"iteration {iteration:3d}: mean reward {means[-1]:.3f}", flush=True)
    return means


def _datum(tinker: Any, prompt: list[int], answer: Any, advantage: float) -> Any:
    """Return an answer as the loss takes it: each token is the target of the one before it; the prompt's have no advantage."""
    tokens = [*prompt, *answer.tokens]
    unscored = [0.0] * (len(prompt) - 1)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": [*unscored, *answer.logprobs],
            "advantages": [*unscored, *[advantage] * len(answer.tokens)],
        },
    )


def main() -> None:
    """Make a model of random weights, train adapters of it, and leave the rewards in RUN/rewards.json."""
    parser = argparse.ArgumentParser(description="Reinforcement learning by the clients alone.")
    add = parser.add_argument
    add("run", type=Path)
    add("--client", choices=("rinker", "tinker"), default="rinker", help="ours, or the official SDK")
    add("--base-url", help="of a server; its machine must have the model at the same path")
    add("--api-key", help="that the server wants; the official SDK wants one that begins with tml-")
    add("--iterations", type=int, default=140)
    add("--learning-rate", type=float, default=2e-3)
    add("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tinker: Any = importlib.import_module("tinker" if asked.client == "tinker" else "reward_loop.rinker")
    ours = {"checkpoint_dir": asked.run / "weights"} if asked.client == "rinker" else {}
    model = make(asked.run.resolve(), seed=asked.seed)
    with tinker.ServiceClient(base_url=asked.base_url, api_key=asked.api_key, **ours) as service:
        client = service.create_lora_training_client(base_model=str(model), rank=32, seed=asked.seed).result()
        settings = {"iterations": asked.iterations, "learning_rate": asked.learning_rate, "seed": asked.seed}
        means = train(tinker, client, client.get_tokenizer(), **settings)
    (asked.run / "rewards.json").write_text(json.dumps(means), encoding="utf-8")


if __name__ == "__main__":
    main()
