"""recipes/rinker_cold_start: a policy learns what people wanted from a reward model that learnt it from preferences."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.rinker_cold_start.make import make
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.train import train_rl
from tests.one_thread import one_thread as one_thread
from tests.recipes.rinker_runs import ROOT, settings, values
from tests.recipes.scripts import run_script
from tests.vllm_servers import VLLMServers

RECIPE = ROOT / "recipes" / "rinker_cold_start"


def test_environments_earn_nothing_and_measure_what_people_wanted(tmp_path: Path) -> None:
    make(tmp_path)
    config = settings(
        RLConfig, "rinker_cold_start", tmp_path, f"data.builder={RECIPE / 'letters_env.py'}", "data.kwargs.batches=1"
    )
    train_rl(config)
    assert values(tmp_path, "reward/total") == [0.0]
    assert 0.0 < values(tmp_path, "env/all/true_share")[0] < 0.2


def learnt(run: Path, rewards: str) -> None:
    """Run the recipe, and check what its README promises."""
    run_script(RECIPE / "run.sh", str(run), rewards, folder=ROOT, timeout_s=570.0)
    assert values(run / "rm", "test/accuracy")[-1] > 0.93
    shares, scores = values(run, "env/all/true_share"), values(run, "reward/total")
    assert shares[0] < 0.2
    assert shares[-1] > 0.6
    assert scores[-1] > scores[0] + 2


@pytest.mark.slow
def test_the_share_of_the_wanted_letter_rises_with_the_reward_model_in_process(tmp_path: Path) -> None:
    learnt(tmp_path, "local")


@pytest.mark.slow
@pytest.mark.vllm
def test_the_share_of_the_wanted_letter_rises_with_served_rewards(tmp_path: Path, vllm_servers: VLLMServers) -> None:
    vllm_servers.make_room(2)
    learnt(tmp_path, "served")
