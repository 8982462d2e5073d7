"""Routes about what is and was trained since the server was started: models as training runs, and what was saved of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from reward_loop.rinker.server.answers import say
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.server.sessions import Model, SavedWeights
from reward_loop.rinker.wire.model_bodies import WeightsInfo

_SCHEME = "tinker://"


class RunRoutes(Routes):
    """To look, not to change anything."""

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("GET", "/training_runs", self.runs),
            ("GET", "/training_runs/{run_id}", self.run),
            ("GET", "/training_runs/{run_id}/checkpoints", self.checkpoints),
            ("POST", "/weights_info", self.weights_info),
        ]

    async def runs(self, request: web.Request) -> web.Response:
        """List the models that are trained now."""
        limit, offset = _number(request, "limit", 20), _number(request, "offset", 0)
        models = sorted(self.hub.sessions.models.values(), key=lambda model: -model.used_at)
        cursor = {"offset": offset, "limit": limit, "total_count": len(models)}
        return say({"training_runs": [_run(model) for model in models[offset : offset + limit]], "cursor": cursor})

    async def run(self, request: web.Request) -> web.Response:
        """Describe one of them."""
        return say(_run(self._model(request.match_info["run_id"])))

    async def checkpoints(self, request: web.Request) -> web.Response:
        """List what was saved of one of them."""
        model = self._model(request.match_info["run_id"])
        return say({"checkpoints": [_checkpoint(saved) for saved in model.saved]})

    async def weights_info(self, request: web.Request) -> web.Response:
        """Say what was saved at a path."""
        asked = await self.read(request, WeightsInfo)
        for model in self.hub.sessions.models.values():
            if any(saved.path == asked.tinker_path for saved in model.saved):
                return say({"base_model": model.base_model, "is_lora": model.is_lora, "lora_rank": model.lora_rank})
        raise Refusal(404, f"no model that is trained now has saved {asked.tinker_path!r:.200}")

    def _model(self, run_id: str) -> Model:
        # By its name behind too: that is what the paths of what was saved begin with.
        for model in self.hub.sessions.models.values():
            if run_id in (model.id, model.backend_id):
                return model
        raise Refusal(404, f"there is no training run {run_id!r:.100} now; those whose session has ended are not kept")


def _run(model: Model) -> Mapping[str, Any]:
    last = {saved.kind: _checkpoint(saved) for saved in model.saved}
    return {
        "training_run_id": model.id,
        "base_model": model.base_model,
        "model_owner": "local",
        "is_lora": model.is_lora,
        "lora_rank": model.lora_rank,
        "last_request_time": _time(model.used_at),
        "last_checkpoint": last.get("training"),
        "last_sampler_checkpoint": last.get("sampler"),
    }


def _checkpoint(saved: SavedWeights) -> Mapping[str, Any]:
    fields = dataclasses.asdict(saved)
    return {
        "checkpoint_id": saved.path.removeprefix(_SCHEME).partition("/")[2],
        "checkpoint_type": fields["kind"],
        "time": _time(saved.saved_at),
        "tinker_path": saved.path,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refusal(400, f"{name}={text!r:.50} must be a number from 0")
    return int(text)
