"""Planes whose ends see the same two slots: the trainer fills them by turns, and the receivers copy out of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from reward_loop.sync.planes.mailbox import TRAINER
from reward_loop.sync.planes.receiver import Receiver
from reward_loop.sync.planes.sender import SLOTS, Sender


class SlotSender(Sender):
    """The trainer's end; the slots are a plane's to make."""

    def _dispatch(self, index: int) -> Collection[int]:
        self._filled()
        for number in self._everyone:
            self._mailbox.post(number, "filled", index)
        return self._everyone

    def _filled(self) -> None:
        """Return when what was put in a slot can be seen from outside."""
        return


class SlotReceiver(Receiver):
    """A server's end; the slots are a plane's to find."""

    _slots: Sequence[torch.Tensor] = ()

    def _fetch(self, index: int, into: torch.Tensor) -> None:
        self._await("filled", self._named(index))
        into.copy_(self._slots[index % SLOTS][: into.numel()])
        self._mailbox.post(TRAINER, "taken", index)

    def _forget(self) -> None:
        self._slots = ()
