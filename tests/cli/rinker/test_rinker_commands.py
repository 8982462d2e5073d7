"""`rinker`: its commands end as they say, and errors are one line that says how to go on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from recipes import tiny_models
from reward_loop.cli.rinker.main import main
from reward_loop.config_base import Config
from reward_loop.config_section import load_section
from reward_loop.errors import ConfigError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.rm.config import RMConfig
from reward_loop.rinker.serve_config import ServeConfig
from reward_loop.rinker.sl.config import SLConfig
from reward_loop.rinker.types import ModelSpec
from tests.cli.conftest import Ended
from tests.one_thread import one_thread as one_thread
from tests.rinker.sampling.own_code import policy_with_own_code

Command = Callable[..., Ended]


@pytest.fixture
def rinker(capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run `rinker WORDS…` and return how it ended."""
    terminated = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exited:
            main([str(word) for word in words])
        written = capfd.readouterr()
        assert isinstance(exited.value.code, int)
        return Ended(exited.value.code, written.out, written.err)

    yield run
    signal.signal(signal.SIGTERM, terminated)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """The configuration of a small run that trains a reward model."""
    pairs = [{"prompt": f"q{row}", "chosen": "yes yes", "rejected": "no"} for row in range(16)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    base = tiny_models.judge(tmp_path / "base")
    (tmp_path / "rm.yaml").write_text(
        f"log_path: {tmp_path / 'run'}\nmodel: {{base_model: {base}, lora: {{rank: 4}}}}\nbatch_size: 8\nepochs: 2\n"
        f"data: {{path: {tmp_path / 'pairs.jsonl'}, test_path: {tmp_path / 'pairs.jsonl'}}}\n"
    )
    return tmp_path / "rm.yaml"


def test_a_run_is_trained_reported_gone_on_with_and_exported(rinker: Command, run_file: Path, tmp_path: Path) -> None:
    ended = rinker("train", "rm", "-c", run_file, "max_steps=3")
    assert ended.code == 0, ended.errors
    assert f"3 steps -> {tmp_path / 'run'}; weights: tinker://" in ended.errors
    assert "<polyline" in (tmp_path / "run" / "report.html").read_text("utf-8")
    ended = rinker("train", "rm", "-c", run_file)
    assert ended.code == 0, ended.errors
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3]
    assert rinker("export", tmp_path / "run", "-o", tmp_path / "model").code == 0
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert rinker("export", tmp_path / "run", "--adapter", "-o", tmp_path / "adapter").code == 0
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert rinker("report", tmp_path / "run", "--html", tmp_path / "page.html").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "rl"], "a run needs its settings"),
        (["train", "rm", "rm.yaml"], "'rm.yaml' is no KEY=VALUE; give configuration files with -c FILE"),
        (["train", "rm", "-c", "nowhere.yaml"], "nowhere.yaml: can't be read"),
        (["train", "rm", "batch_sise=3"], "batch_sise: there is no such setting; did you mean batch_size?"),
        (["train", "rm", "batch_size=0", "log_path=x"], "batch_size=0: must be at least 1"),
        (["export", "nowhere", "-o", "out"], "nowhere is no directory"),
        (["report", "nowhere"], "give the log_path of a run"),
        (["serve", "server.prot=1"], "server.prot: there is no such setting; did you mean server.port?"),
        (["serve", "server.host=0.0.0.0"], "needs an api_key"),
        (["eval", "log_path=x"], "model: a value is missing"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    rinker: Command, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = rinker(*words)
    assert (ended.code, ended.output) == (2, "")
    assert ended.errors.startswith("error: ")
    assert said in ended.errors


def test_a_directory_without_a_checkpoint_is_refused(rinker: Command, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints.jsonl").write_text("")
    assert "has saved nothing yet" in rinker("export", tmp_path / "run", "-o", tmp_path / "out").errors


RUN = ("log_path=x", "model.base_model=x", "data.path=x")


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (ServeConfig, (), "runtime.rewards"),
        (SLConfig, RUN, "service.runtime.rewards"),
        (RMConfig, RUN, "service.runtime.rewards"),
    ],
)
def test_actors_for_rewards_that_nothing_would_ask_are_refused(kind: type[Config], settings: tuple[str, ...], key: str) -> None:
    assert load_section(kind, overrides=settings)
    with pytest.raises(ConfigError, match=f"{key}: .*rinker train rl"):
        load_section(kind, overrides=[*settings, f"{key}=2"])


def test_the_code_of_a_model_is_run_for_its_export_where_that_is_allowed(rinker: Command, tmp_path: Path) -> None:
    policy = policy_with_own_code(tmp_path / "own-code")
    engine = Engine(ModelSpec(policy), EngineSettings(device="cpu", trust_remote_code=True))
    engine.save(tmp_path / "checkpoint", optimizer=False)
    refused = rinker("export", tmp_path / "checkpoint", "-o", tmp_path / "model")
    assert refused.code == 2
    assert "trust_remote_code" in refused.errors
    ended = rinker("export", tmp_path / "checkpoint", "-o", tmp_path / "model", "--trust-remote-code")
    assert ended.code == 0, ended.errors
    assert (tmp_path / "model" / "model.safetensors").exists()
