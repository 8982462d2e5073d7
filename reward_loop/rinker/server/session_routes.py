"""Routes about the server and about sessions."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from reward_loop.rinker.server.answers import say
from reward_loop.rinker.server.routes import Route, Routes
from reward_loop.rinker.wire.replies import reply_of
from reward_loop.rinker.wire.session_bodies import CreateSession, SessionBody


class SessionRoutes(Routes):
    """To learn what the server can do, and to begin, keep and finish a session."""

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            ("GET", "/healthz", self.health),
            ("POST", "/client/config", self.client_config),
            ("POST", "/client/dynamic_config", self.dynamic_config),
            ("GET", "/get_server_capabilities", self.capabilities),
            ("POST", "/telemetry", self.telemetry),
            ("POST", "/create_session", self.create),
            ("POST", "/session_heartbeat", self.heartbeat),
            ("POST", "/sessions/{session_id}/finish", self.finish),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """Say that the server is there."""
        return say({"status": "ok"})

    async def client_config(self, request: web.Request) -> web.Response:
        """Say how clients should speak: read once by each."""
        await self.body(request)
        settings = self.hub.settings
        return say(
            {
                "pjwt_auth_enabled": False,
                "parallel_fwdbwd_chunks": True,
                "proto_compress_fwdbwd": settings.compress,
                "fwdbwd_max_chunk_len": settings.max_chunk_datums,
                "fwdbwd_max_chunk_bytes_count": settings.max_chunk_bytes,
                "sample_join_sampling_session": True,
            }
        )

    async def dynamic_config(self, request: web.Request) -> web.Response:
        """Say how clients should speak: read again and again."""
        await self.body(request)
        return say({"sample_cancel_enabled": True})

    async def capabilities(self, request: web.Request) -> web.Response:
        """Say which models there are."""
        return say(reply_of(await self.hub.backend.capabilities(), "get_server_capabilities"))

    async def telemetry(self, request: web.Request) -> web.Response:
        """Take what clients say of themselves, and forget it."""
        await self.body(request)
        return say({"status": "accepted"})

    async def create(self, request: web.Request) -> web.Response:
        """Begin a session."""
        await self.read(request, CreateSession)
        session = self.hub.sessions.begin(self.hub.now())
        return say({"type": "create_session", "session_id": session.id})

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Note that a session lives."""
        asked = await self.read(request, SessionBody)
        self.hub.sessions.get(asked.session_id, self.hub.now())
        return say({"type": "session_heartbeat"})

    async def finish(self, request: web.Request) -> web.Response:
        """End a session. One that has ended stays as it is."""
        await self.body(request)
        self.hub.end_session(request.match_info["session_id"], "its client finished it")
        return say({})
