"""The server as an application of aiohttp."""

from __future__ import annotations

from aiohttp import web

from reward_loop.rinker.server.future_routes import FutureRoutes
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.middleware import errors_as_answers
from reward_loop.rinker.server.model_routes import ModelRoutes
from reward_loop.rinker.server.routes import PREFIX, Routes
from reward_loop.rinker.server.run_routes import RunRoutes
from reward_loop.rinker.server.sampling_routes import SamplingRoutes
from reward_loop.rinker.server.session_routes import SessionRoutes
from reward_loop.rinker.server.training_routes import TrainingRoutes


def build_app(hub: Hub) -> web.Application:
    """Return the application whose routes use `hub`, which must run while requests are served."""
    app = web.Application(middlewares=[errors_as_answers(hub)])
    models = ModelRoutes(hub)
    groups: list[Routes] = [
        SessionRoutes(hub),
        models,
        TrainingRoutes(hub, models),
        SamplingRoutes(hub),
        FutureRoutes(hub),
        RunRoutes(hub),
    ]
    for group in groups:
        for method, path, handler in group.table():
            app.router.add_route(method, PREFIX + path, handler)
    return app
