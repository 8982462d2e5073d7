"""Checkpoints: a run that is broken off goes on as if it had not been, and nothing that is damaged is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checkpoint import read_checkpoint
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from tests.processes import ROOT
from tests.rinker.engine.models import names, sampled, supervised, write_language_model

CPU = EngineSettings(device="cpu")
LORA = LoraConfig(rank=4)


def train(engine: Engine, begin: int, end: int) -> None:
    for step in range(begin, end):
        engine.forward_backward(sampled(4, seed=step), "importance_sampling")
        engine.optim_step(AdamParams(1e-2, weight_decay=0.1, grad_clip_norm=1.0))


def identical(left: Engine, right: Engine) -> bool:
    mine, theirs = left.weights(), right.weights()
    return all(torch.equal(value, theirs[name]) for name, value in mine.items())


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("more", [{}, {"weights": "bfloat16"}, {"dropout": True}], ids=["float32", "bfloat16", "dropout"])
def test_a_run_goes_on_bit_for_bit(tmp_path: Path, lora: LoraConfig | None, more: dict[str, object]) -> None:
    model = write_language_model(tmp_path / "model", attention_dropout=0.2 if "dropout" in more else 0.0)
    spec, settings = ModelSpec(str(model), lora=lora), EngineSettings.model_validate({"device": "cpu", **more})
    undisturbed, first = Engine(spec, settings), Engine(spec, settings)
    train(undisturbed, 0, 6)
    train(first, 0, 3)
    first.save(tmp_path / "checkpoint", optimizer=True)
    second = Engine(spec, settings)
    second.load(tmp_path / "checkpoint", optimizer=True)
    assert second.step == 3
    assert identical(first, second)
    train(second, 3, 6)
    assert identical(undisturbed, second)


def test_without_the_optimiser_it_begins_anew(language_model: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(language_model), CPU)
    train(engine, 0, 2)
    engine.save(tmp_path / "both", optimizer=True)
    engine.save(tmp_path / "weights", optimizer=False)
    engine.load(tmp_path / "both", optimizer=False)
    other = Engine(ModelSpec(language_model), CPU)
    other.load(tmp_path / "weights", optimizer=False)
    assert identical(engine, other)
    train(engine, 2, 3)
    train(other, 2, 3)
    assert identical(engine, other)
    with pytest.raises(RequestFailedError, match=r"holds no optimiser's state; load it without") as caught:
        other.load(tmp_path / "weights", optimizer=True)
    assert caught.value.category == "user"


def test_loading_drops_gradients(language_model: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(language_model), CPU)
    engine.save(tmp_path / "checkpoint", optimizer=True)
    engine.forward_backward(supervised(1), "cross_entropy")
    engine.load(tmp_path / "checkpoint", optimizer=True)
    with pytest.raises(RequestFailedError, match="call forward_backward first"):
        engine.optim_step(AdamParams())


def test_it_says_what_it_holds(tmp_path: Path) -> None:
    model = write_language_model(tmp_path / "model", with_tokenizer=True)
    engine = Engine(ModelSpec(str(model), lora=LORA), EngineSettings(device="cpu", renderer="qwen"))
    train(engine, 0, 1)
    engine.save(tmp_path / "a" / "b" / "checkpoint", optimizer=True)
    folder = tmp_path / "a" / "b" / "checkpoint"
    manifest = json.loads((folder / "checkpoint.json").read_text())
    assert (manifest["renderer"], manifest["step"], manifest["spec"]["lora"]["rank"]) == ("qwen", 1, 4)
    assert sorted(manifest["files"]) == ["optimizer.safetensors", "random.safetensors", "weights.safetensors"]
    assert len(AutoTokenizer.from_pretrained(folder / "model")) == len(AutoTokenizer.from_pretrained(model))
    assert {"config.json", "adapter_config.json"} <= set(names(folder / "model"))
    found = read_checkpoint(folder)
    assert found.spec == ModelSpec(str(model), lora=LORA)
    assert all("lora_" in name for name in found.weights)
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]  # nothing is left of the writing


def test_a_model_without_a_tokenizer_is_saved_without_one(language_model: str, tmp_path: Path) -> None:
    Engine(ModelSpec(language_model), CPU).save(tmp_path / "checkpoint", optimizer=False)
    assert names(tmp_path / "checkpoint" / "model") == ["config.json"]


def test_saving_again_takes_the_place_of_what_was_there(language_model: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(language_model), CPU)
    engine.save(tmp_path / "checkpoint", optimizer=True)
    train(engine, 0, 1)
    engine.save(tmp_path / "checkpoint", optimizer=False)
    assert (read_checkpoint(tmp_path / "checkpoint").step, names(tmp_path)) == (1, ["checkpoint"])


def test_what_can_not_be_written_leaves_nothing_behind(language_model: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RequestFailedError, match="can't be written") as caught:
        Engine(ModelSpec(language_model), CPU).save(tmp_path / "file" / "checkpoint", optimizer=True)
    assert caught.value.category == "server"
    assert names(tmp_path) == ["file"]


# A process of its own: no file of it can grow beyond 1,000 bytes, as on a disk that is full.
FULL = """
import resource, sys
from pathlib import Path
from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.types import ModelSpec
from tests.rinker.engine.test_engine_checkpoint import CPU

engine = Engine(ModelSpec(sys.argv[1]), CPU)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    engine.save(Path(sys.argv[2]), optimizer=True)
except RequestFailedError as error:
    print(error.category, error.message)
"""


def test_a_full_disk_leaves_what_was_there(language_model: str, tmp_path: Path) -> None:
    engine = Engine(ModelSpec(language_model), CPU)
    train(engine, 0, 1)
    engine.save(tmp_path / "checkpoint", optimizer=True)
    command = [sys.executable, "-c", FULL, language_model, str(tmp_path / "checkpoint")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.startswith("server ")
    assert "can't be written" in said
    assert (read_checkpoint(tmp_path / "checkpoint").step, names(tmp_path)) == (1, ["checkpoint"])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ModelSpec("", lora=replace(LORA, rank=8)), "lora.rank was 4 and is 8"),
        (ModelSpec("", lora=replace(LORA, alpha=8.0)), "lora.alpha was 32.0 and is 8.0"),
        (ModelSpec("", lora=replace(LORA, train_mlp=False)), "lora.train_mlp was True and is False"),
        (ModelSpec("", lora=None), "lora.rank was 4 and is None"),
        (ModelSpec("", kind="seq_cls", lora=LORA), "kind was 'causal_lm' and is 'seq_cls'"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(language_model: str, tmp_path: Path, other: ModelSpec, message: str) -> None:
    Engine(ModelSpec(language_model, lora=LORA), CPU).save(tmp_path / "checkpoint", optimizer=True)
    engine = Engine(replace(other, base_model=language_model), CPU)
    before = engine.weights()
    with pytest.raises(RequestFailedError, match=message) as caught:
        engine.load(tmp_path / "checkpoint", optimizer=True)
    assert caught.value.category == "user"
    assert all(torch.equal(before[name], value) for name, value in engine.weights().items())


def test_adapters_of_another_base_model_are_refused_and_of_a_moved_one_are_not(language_model: str, tmp_path: Path) -> None:
    Engine(ModelSpec(language_model, lora=LORA), CPU).save(tmp_path / "checkpoint", optimizer=True)
    elsewhere = Engine(ModelSpec(str(write_language_model(tmp_path / "same")), lora=replace(LORA, seed=7)), CPU)
    elsewhere.load(tmp_path / "checkpoint", optimizer=True)
    another = Engine(ModelSpec(str(write_language_model(tmp_path / "other", seed=1)), lora=LORA), CPU)
    with pytest.raises(RequestFailedError, match="has other layers or weights than"):
        another.load(tmp_path / "checkpoint", optimizer=True)


def test_a_killed_process_leaves_whole_checkpoints_only(language_model: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.rinker.engine.killed", language_model, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while process.poll() is None and not [name for name in names(tmp_path) if name.startswith(".unfinished-")]:
            pass  # it is writing again in no time
        process.kill()
    whole = [name for name in names(tmp_path) if not name.startswith(".")]
    assert whole
    for name in whole:
        assert read_checkpoint(tmp_path / name).step == int(name.removeprefix("step-"))
    Engine(ModelSpec(language_model), CPU).save(tmp_path / "next", optimizer=False)
    assert names(tmp_path) == sorted([*whole, "next"])  # what it was writing is swept away


FILES = ["weights.safetensors", "optimizer.safetensors", "random.safetensors", "checkpoint.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_file_is_named_and_nothing_is_loaded(language_model: str, tmp_path: Path, name: str, damage: str) -> None:
    engine = Engine(ModelSpec(language_model, lora=LORA), CPU)
    train(engine, 0, 1)
    engine.save(tmp_path / "checkpoint", optimizer=True)
    train(engine, 1, 2)
    before = engine.weights()
    path = tmp_path / "checkpoint" / name
    raw = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    else:
        raw[len(raw) // 2] ^= 1
        if name == "checkpoint.json":
            raw[0] = 0
        path.write_bytes(raw)
    with pytest.raises(RequestFailedError, match=name) as caught:
        engine.load(tmp_path / "checkpoint", optimizer=True)
    assert caught.value.category == ("user" if (name, damage) == ("checkpoint.json", "gone") else "server")
    assert all(torch.equal(before[key], value) for key, value in engine.weights().items())


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("[]", "it is no manifest"),
        ('{"format": 2}', "has format 2, and this version reads 1"),
        ('{"format": 1}', "it lacks digest, files"),
    ],
)
def test_a_manifest_that_is_none_is_refused(language_model: str, tmp_path: Path, manifest: str, message: str) -> None:
    (tmp_path / "checkpoint.json").write_text(manifest)
    with pytest.raises(RequestFailedError, match=message):
        Engine(ModelSpec(language_model), CPU).load(tmp_path, optimizer=True)
