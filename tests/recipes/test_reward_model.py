"""recipes/reward_model: the three trainings reach what they should, servers serve them, and a policy learns from one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from recipes.reward_model.letters import base_model, preferences
from recipes.reward_model.policy import Policy, Samples
from recipes.reward_model.served import served_accuracy
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.encoding import encode_preferences
from reward_loop.training.preferences import write_preferences
from reward_loop.training.reward_model import load_reward_model
from tests.one_thread import one_thread as one_thread
from tests.vllm_servers import VLLMServers

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
FULL, LORA, HEAD_ONLY = RewardModelTrainingMode.FULL, RewardModelTrainingMode.LORA, RewardModelTrainingMode.HEAD_ONLY
# Of about equal length, side by side.
HALVES = (("full:0", "head_only:0"), ("lora:0",))
SLOW_HALVES = (("full:0", "lora:0", "head_only:0", "full:1", "head_only:1"), ("lora:1", "full:2", "lora:2", "head_only:2"))
MOST_CPU_S = 90.0


@dataclass(frozen=True, slots=True)
class Runs:
    """Trainings in each mode, with `--slow` from three seeds: figures by mode and seed, and the directory of what they left."""

    directory: Path
    figures: Mapping[tuple[str, int], Mapping[str, float]]

    def accuracies(self, mode: RewardModelTrainingMode) -> list[float]:
        return [figures["accuracy"] for (trained, _), figures in sorted(self.figures.items()) if trained == mode]


def module(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", name, *map(str, arguments)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Runs:
    directory = tmp_path_factory.mktemp("runs")
    halves = SLOW_HALVES if request.config.getoption("--slow") else HALVES
    commands = [module("tests.recipes.reward_model_runs", directory, *half) for half in halves]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        lines = [process.communicate(timeout=500)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    figures: list[dict[str, Any]] = [json.loads(line) for line in "".join(lines).splitlines()]
    return Runs(directory, {(one["mode"], one["seed"]): one for one in figures})


def test_full_and_lora_learn_it_and_the_head_alone_half_of_it(runs: Runs) -> None:
    assert min(runs.accuracies(FULL)) >= 0.93
    assert min(runs.accuracies(LORA)) >= 0.93
    assert min(runs.accuracies(HEAD_ONLY)) > 0.6
    assert all(head < full for head, full in zip(runs.accuracies(HEAD_ONLY), runs.accuracies(FULL), strict=True))
    assert max(figures["cpu_s"] for figures in runs.figures.values()) < MOST_CPU_S


def test_a_run_leaves_its_steps_and_a_plot(runs: Runs) -> None:
    steps = [json.loads(line) for line in (runs.directory / "full-0" / "steps.jsonl").read_text().splitlines()]
    assert [step["number"] for step in steps] == list(range(1, 251))
    assert steps[-1]["held_out"]["accuracy"] == runs.figures["full", 0]["accuracy"]
    assert (runs.directory / "full-0" / "training.png").read_bytes().startswith(b"\x89PNG")


def test_held_out_answers_are_in_no_pair_that_is_trained_on() -> None:
    train, held_out = preferences(500, 100, seed=3)
    known = {(pair.prompt, answer) for pair in train for answer in (pair.chosen, pair.rejected)}
    assert not known & {(pair.prompt, answer) for pair in held_out for answer in (pair.chosen, pair.rejected)}
    for pair in [*train, *held_out]:
        letter = str(pair.prompt)[0]
        assert str(pair.chosen).count(letter) > str(pair.rejected).count(letter)


def test_a_model_and_preferences_of_ones_own(tmp_path: Path) -> None:
    train, held_out = preferences(40, 10)
    mine = base_model(tmp_path / "mine")
    files = [write_preferences(tmp_path / name, some) for name, some in (("a.jsonl", train), ("b.jsonl", held_out))]
    options = ["--model", mine, "--preferences", files[0], "--held-out", files[1], "--steps", 3, "--dtype", "bfloat16"]
    ended = subprocess.run(
        module("recipes.reward_model.train_rm_full", tmp_path / "out", *options),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    cells = [cell.strip() for line in ended.stdout.splitlines() if line.startswith("│") for cell in line.strip("│").split("│")]
    assert (cells[0], cells[2]) == ("full", "3")
    assert load_reward_model(tmp_path / "out" / "model") is not None


def test_a_policy_learns_from_rewards_alone() -> None:
    policy = Policy(seed=0)

    def rewards(samples: Samples) -> Sequence[float]:
        return [float(text[2:].count(text[0])) for text in samples.texts]

    before = policy.sample(16)
    assert before.true_share < 0.3
    for _ in range(15):
        samples = policy.sample(16)
        policy.improve(samples, rewards(samples))
    assert policy.sample(16).true_share > 0.5


@pytest.fixture
def letters_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A server of the untrained model of the seed 0."""
    model = vllm_servers.model("letters", base_model)
    return vllm_servers.running(ServerSpec(model, "letters", "discriminative", max_model_len=64))


def test_a_server_is_as_accurate_as_the_trainer_after_each_mode(letters_server: VLLMServer, runs: Runs) -> None:
    address = letters_server.url.removeprefix("http://")
    tokenizer = AutoTokenizer.from_pretrained(runs.directory / "full-0" / "model")
    held_out = encode_preferences(preferences(5000, 600)[1], tokenizer)
    publisher = create_reward_publisher([address])

    def published(mode: RewardModelTrainingMode) -> float:
        weights = load_reward_model(runs.directory / f"{mode}-0" / "model").state_dict()
        publisher.publish(weights, training_mode=mode)
        return served_accuracy(address, held_out)

    assert served_accuracy(address, held_out) < 0.6
    assert published(HEAD_ONLY) == runs.figures[HEAD_ONLY, 0]["accuracy"]  # on the untrained body, which is this server's
    assert published(FULL) == runs.figures[FULL, 0]["accuracy"]
    # The script goes on from the last checkpoint, which leaves nothing to train, and publishes adapters merged by itself.
    ended = subprocess.run(
        module("recipes.reward_model.train_rm_lora", runs.directory / "lora-0", "--publish", address, "--version", 7),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    accuracy = runs.figures[LORA, 0]["accuracy"]
    assert "published version=7 mode=lora" in ended.stdout
    assert f"{address}: held-out accuracy {accuracy:.1%}" in ended.stdout
    assert served_accuracy(address, held_out) == accuracy


@pytest.mark.slow
def test_a_cold_start_ends_with_a_policy_that_does_what_people_wanted(tmp_path: Path, vllm_servers: VLLMServers) -> None:
    vllm_servers.make_room(2)
    command = module("recipes.reward_model.cold_start_rlhf", tmp_path)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    iterations = [json.loads(line) for line in (tmp_path / "iterations.jsonl").read_text().splitlines()]
    assert iterations[0]["true_share"] < 0.3
    assert iterations[-1]["true_share"] > 0.6
    assert iterations[-1]["reward"] > iterations[0]["reward"]
    assert "published version=1 mode=full" in ended.stdout
    assert (tmp_path / "cold_start.png").read_bytes().startswith(b"\x89PNG")
