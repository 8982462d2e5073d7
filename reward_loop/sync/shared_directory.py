"""The directory through which a trainer and its servers exchange files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from reward_loop.errors import WeightSyncError

_LOCAL = ("127.0.0.1", "::1", "localhost")


def shared_directory(directory: str | None, urls: Iterable[str]) -> Path:
    """Return the directory that was set, or, where all these servers are on this machine, a temporary one of this user.

    It is the same one for every publisher to the same servers. Raises WeightSyncError where others would not see it.
    """
    if directory is not None:
        return Path(directory).expanduser().absolute()
    places = [urlsplit(url) for url in urls]
    if away := [place.netloc for place in places if place.hostname not in _LOCAL]:
        raise WeightSyncError(
            f"{', '.join(away)} may not see this machine's files: pass directory=, one that trainer and servers both see"
        )
    ports = "-".join(sorted(str(place.port) for place in places))
    return Path(tempfile.gettempdir()) / f"reward-loop-sync-{os.getuid()}" / ports
