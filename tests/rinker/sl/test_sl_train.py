"""Supervised learning: a model learns what conversations say, and what the files may hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes import tiny_models
from reward_loop.errors import DataError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.loops.observer import Observer
from reward_loop.rinker.rendering import renderer_for
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.sl.config import ConversationsConfig, SLConfig
from reward_loop.rinker.sl.data import read_conversations, supervised_datum, with_mean_weights
from reward_loop.rinker.sl.train import train_sl
from reward_loop.rinker.types import ModelInput


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.judge(tmp_path_factory.mktemp("model")))


def conversations(path: Path, *answers: str) -> str:
    rows = [{"messages": [{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": answer}]} for answer in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


class Curve(Observer):
    def __init__(self, crash: int | None = None) -> None:
        self.metrics: list[Mapping[str, float]] = []
        self.crash = crash

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.metrics.append(metrics)
        if step == self.crash:
            raise KeyboardInterrupt

    def series(self, name: str) -> list[float]:
        return [one[name] for one in self.metrics]


def config(tmp_path: Path, model: str, **settings: Any) -> SLConfig:
    data = {"path": conversations(tmp_path / "train.jsonl", "42", "42", "42", "42")}
    base = {"log_path": tmp_path / "run", "model": {"base_model": model}, "data": data, "batch_size": 2}
    return SLConfig.model_validate({**base, "epochs": 4, "adam": {"learning_rate": 1e-2}, **settings})


def test_the_loss_falls_and_the_model_says_what_it_was_taught(tmp_path: Path, model: str) -> None:
    curve = Curve()
    test = conversations(tmp_path / "test.jsonl", "42")
    data = {"path": conversations(tmp_path / "train.jsonl", "42", "42", "42", "42"), "test_path": test}
    result = train_sl(config(tmp_path, model, data=data, eval_every=4), observer=curve)
    nll = curve.series("train_mean_nll")
    assert len(nll) == result.steps == 8
    assert nll[-1] < 0.2 < 2 < nll[0]
    assert ["test/nll" in one for one in curve.metrics] == [False, False, False, True] * 2
    assert curve.metrics[-1]["test/nll"] < 0.2
    assert (curve.metrics[0]["num_loss_tokens"], curve.metrics[0]["num_sequences"]) == (2 * 3, 2)  # "4", "2" and the end
    assert result.checkpoint is not None
    assert result.checkpoint.sampler_path is not None


def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path, model: str) -> None:
    whole, cut, rest = Curve(), Curve(crash=2), Curve()
    train_sl(config(tmp_path, model, log_path=tmp_path / "whole"), observer=whole)
    with pytest.raises(KeyboardInterrupt):
        train_sl(config(tmp_path, model, save_every=2), observer=cut)
    train_sl(config(tmp_path, model, save_every=2), observer=rest)
    assert rest.series("progress/batch") == [2, 3, 4, 5, 6, 7]
    assert rest.series("train_mean_nll") == pytest.approx(whole.series("train_mean_nll")[2:], abs=1e-5)


def test_a_mean_is_a_sum_with_smaller_weights(tmp_path: Path, model: str) -> None:
    both = [Curve(), Curve()]
    for curve, reduction in zip(both, ("sum", "mean"), strict=True):
        train_sl(config(tmp_path, model, log_path=tmp_path / reduction, reduction=reduction, max_steps=2), observer=curve)
    # Adam divides the scale out again, up to its eps.
    assert both[1].series("train_mean_nll") == pytest.approx(both[0].series("train_mean_nll"), abs=1e-4)
    assert both[1].series("optim/grad_norm")[0] < both[0].series("optim/grad_norm")[0]


@pytest.mark.parametrize(("tokens", "fits"), [(1025, True), (1026, False)])
def test_without_max_tokens_a_conversation_is_as_long_as_the_model_takes(
    tmp_path: Path, model: str, tokens: int, *, fits: bool
) -> None:
    # The last token is only said, never read: 1024 positions are enough for 1025.
    renderer = renderer_for(tiny_models.tokenizer())
    short, _ = renderer.build_supervised_example([{"role": "user", "content": "6*7?"}, {"role": "assistant", "content": "~"}])
    data = {"path": conversations(tmp_path / "long.jsonl", "~" * (tokens - short.length + 1), "42")}
    settings: dict[str, Any] = {"data": data, "epochs": 1}
    if fits:
        assert train_sl(config(tmp_path, model, **settings)).steps == 1
        return
    with pytest.raises(DataError, match="row 1: 1026 tokens are more than 1025"):
        train_sl(config(tmp_path, model, **settings))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    settings |= {"log_path": tmp_path / "drop", "data": {**data, "too_long": "drop"}}
    assert train_sl(config(tmp_path, model, **settings)).metrics["num_sequences"] == 1


def test_each_run_frees_its_model(tmp_path: Path, model: str) -> None:
    limits = ServiceSettings(max_models=1)
    with ServiceClient(checkpoint_dir=tmp_path / "weights", limits=limits) as service:
        for name in ("first", "second"):
            train_sl(config(tmp_path, model, log_path=tmp_path / name, max_steps=1), service=service)


def test_a_datum_lets_each_token_be_said_by_the_one_before_it() -> None:
    datum = supervised_datum(ModelInput.from_ints([1, 2, 3]), torch.tensor([0.0, 0.0, 1.0]))
    assert datum.model_input.to_ints() == [1, 2]
    assert datum.loss_fn_inputs["target_tokens"].tolist() == [2, 3]
    assert datum.loss_fn_inputs["weights"].tolist() == [0.0, 1.0]
    two = with_mean_weights([datum, datum])
    assert [one.loss_fn_inputs["weights"].tolist() for one in two] == [[0.0, 0.5]] * 2
    with pytest.raises(DataError, match="1 tokens have 1 weights"):
        supervised_datum(ModelInput.from_ints([1]), torch.tensor([1.0]))


@pytest.mark.parametrize(
    ("row", "settings", "wrong"),
    [
        ({"chat": []}, {}, r"row 1: there is no 'messages'; it has chat"),
        ({"messages": "hi"}, {}, "row 1: a conversation is a list"),
        ({"messages": [{"role": "user", "content": "hi"}]}, {}, "row 1: nothing is taught"),
        ({"messages": [{"role": "assistant", "content": "hello"}]}, {"max_tokens": 3}, r"row 1: \d+ tokens are more than"),
        (
            {"messages": [{"role": "assistant", "content": "hello"}]},
            {"max_tokens": 3, "too_long": "truncate_right"},
            "nothing of it is taught",
        ),
        ({"messages": [{"role": "assistant", "content": "x"}]}, {"max_tokens": 3, "too_long": "drop"}, "every conversation"),
    ],
)
def test_what_can_not_be_taught_is_refused(tmp_path: Path, row: Any, settings: dict[str, Any], wrong: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(row) + "\n")
    where = ConversationsConfig.model_validate({"path": str(path), **settings})
    what = SLConfig.model_fields["train_on_what"].default
    with pytest.raises(DataError, match=wrong):
        read_conversations(str(path), where, renderer_for(tiny_models.tokenizer()), what)
