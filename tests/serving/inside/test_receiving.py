"""Updates that come from another process, or don't."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from reward_loop.serving.inside.receiving import NotFinite, Reception
from reward_loop.serving.inside.staged_file import StagedFile
from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.planes.receivers import receiver_of
from tests.serving.inside.trainer_process import Trainer, running, tensors_of

PATIENCE_S = 20.0
MANIFEST = Manifest.of(
    [
        TensorSpec("a", "float32", (300, 100)),
        TensorSpec("b", "bfloat16", (7, 3)),
        TensorSpec("c", "float16", (50_001,)),
        TensorSpec("score.weight", "float32", (1, 100)),
    ],
    bucket_bytes=64 * 1024,
)


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    """A trainer that does as the tests say."""
    with running() as started:
        yield started


class Received:
    """A reception under way, and its end."""

    def __init__(self, path: Path, ticket: dict[str, object], timeout_s: float) -> None:
        self.staged = StagedFile.create(path / "staged.safetensors", MANIFEST)
        self._ends = queue.Queue[list[str] | Exception]()
        receiver = receiver_of(ticket, timeout_s)
        self.reception = Reception(self.staged, receiver, timeout_s, lambda found, _: self._ends.put(found))
        self.reception.start()

    def end(self, wait_s: float = PATIENCE_S) -> list[str] | Exception:
        """Return what was told of its end; queue.Empty if nothing was."""
        return self._ends.get(timeout=wait_s)


@pytest.mark.parametrize("plane", ["gloo", "shm"])
def test_what_comes_is_a_safetensors_file_with_the_trainers_digests(trainer: Trainer, plane: str, tmp_path: Path) -> None:
    received = Received(tmp_path, trainer.sends(MANIFEST, plane), PATIENCE_S)
    digests = received.end()
    assert isinstance(digests, list)
    assert digests == trainer.hears()
    assert len(set(digests)) == MANIFEST.buckets == 4
    found, sent = load_file(tmp_path / "staged.safetensors"), tensors_of(MANIFEST)
    assert {name: tensor.dtype for name, tensor in found.items()} == {name: tensor.dtype for name, tensor in sent.items()}
    assert all(torch.equal(found[name], sent[name]) for name in sent)


def test_a_weight_that_is_not_finite_is_named(trainer: Trainer, tmp_path: Path) -> None:
    received = Received(tmp_path, trainer.sends(MANIFEST, "shm", nan="c"), PATIENCE_S)
    why = received.end()
    assert isinstance(why, NotFinite)
    assert str(why).startswith("c holds NaN or infinity")
    trainer.hears()


def test_a_trainer_that_sends_nothing_is_waited_for_as_long_as_was_said(trainer: Trainer, tmp_path: Path) -> None:
    received = Received(tmp_path, trainer.sends(MANIFEST, "gloo", buckets=0), 0.5)
    assert trainer.hears() == []
    assert "0.5 s" in str(received.end())


def test_a_trainer_that_is_killed_in_mid_send_is_noticed_at_once(tmp_path: Path) -> None:
    with running() as doomed:
        received = Received(tmp_path, doomed.sends(MANIFEST, "gloo", buckets=1), 600.0)
        doomed.hears()
        doomed.process.kill()
        assert isinstance(received.end(), Exception)


def test_an_aborted_reception_ends_and_says_nothing(trainer: Trainer, tmp_path: Path) -> None:
    received = Received(tmp_path, trainer.sends(MANIFEST, "shm", buckets=1), 600.0)
    trainer.hears()
    received.reception.abort()
    received.reception.join()
    with pytest.raises(queue.Empty):
        received.end(0)
