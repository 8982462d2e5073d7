"""The one place where what goes wrong below the service becomes the error that clients know."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from reward_loop.errors import DataError, RequestFailedError

logger = logging.getLogger(__name__)


@contextmanager
def as_request_failures(what: str) -> Generator[None]:
    """Turn any error of the block into RequestFailedError: "user" for data that is wrong, "server" for what is not foreseen."""
    try:
        yield
    except RequestFailedError:
        raise
    except DataError as error:
        raise RequestFailedError(str(error), category="user") from error
    except Exception as error:  # learners and samplers run whatever models there are: any error of theirs ends one request only
        logger.exception("%s failed", what)
        raise RequestFailedError(f"{what} failed: {error!r}", category="server") from error
