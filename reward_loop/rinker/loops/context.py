"""How long a row may be for the model of a run."""

from __future__ import annotations

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient


async def most_tokens(service: ServiceClient, client: TrainingClient, wanted: int | None, *, unread: int = 0) -> int | None:
    """Return `wanted` tokens, or what the model takes where that is less; None: any number, as far as the service says.

    Of a row the model does not read the last `unread` tokens.
    """
    context = await _context(service, client.get_info().model_data.model_name)
    known = [most for most in (wanted, None if context is None else context + unread) if most is not None]
    return min(known, default=None)


async def _context(service: ServiceClient, base_model: str) -> int | None:
    try:
        models = (await service.get_server_capabilities_async()).supported_models
    except RequestFailedError as error:
        if error.category != "user":
            raise
        return None  # a configuration that can't be read without code of its own, which the service's learner may run
    return next((model.max_context_length for model in models if model.model_name == base_model), None)
