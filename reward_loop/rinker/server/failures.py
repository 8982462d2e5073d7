"""What clients are told of an error: whose fault it is, and what happened."""

from __future__ import annotations

import logging

from reward_loop.errors import AuthenticationError, ConfigError, DataError, RequestFailedError
from reward_loop.rinker.server.promise import Reply

logger = logging.getLogger(__name__)


def category_of(error: Exception) -> str:
    """Return whose fault an error is: "user", "server" or "unknown"."""
    if isinstance(error, RequestFailedError):
        return error.category
    return "user" if isinstance(error, (ConfigError, DataError, AuthenticationError)) else "server"


def failure_of(error: Exception, what: str) -> Reply:
    """Return an error as the result of a request; one that is nobody's on purpose is logged."""
    category = category_of(error)
    if isinstance(error, RequestFailedError) or category == "user":
        return Reply.failure(str(error), category)
    logger.error("request=%s failed", what, exc_info=error)
    return Reply.failure(f"{type(error).__name__}: {error}", category)
