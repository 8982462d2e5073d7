"""Bodies about results that are still to come."""

from __future__ import annotations

from reward_loop.rinker.wire.body import Name, Number, OpenBody, Request


class RetrieveFuture(Request):
    """Asks for a result; of a large one its size will do, if `allow_metadata_only`."""

    request_id: Name
    allow_metadata_only: bool = False


class CancelFuture(OpenBody):
    """Says that a result is not wanted any more: by its id, or (not the SDK's way) by what was asked of whom."""

    request_id: Name | None = None
    sampling_session_id: Name | None = None
    seq_id: Number = 0
