"""How a judge model is reached, as services and rubrics are told it in YAML."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from reward_loop.config_base import Config, Count
from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.openai_compatible import Enforce, OpenAICompatible
from reward_loop.rubrics.judges.usage import Prices


class ModelSettings(Config):
    """A model behind an OpenAI-compatible service, or (without an `endpoint`) behind this project's router."""

    endpoint: str | None = None
    """Base URL of the service, with or without /v1."""
    model: str | None = None
    """Name of the model; not needed where the router has only one."""
    api_key_env: str | None = "OPENAI_API_KEY"
    """Environment variable with the key that the service wants; the router gets none."""
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that a request may take with all its attempts, without the wait for its turn."""
    max_concurrency: Count = 64
    """Requests under way at once."""
    sampling: dict[str, Any] = Field(default_factory=dict)
    """What goes with each request, such as temperature and max_tokens."""
    enforce: Enforce = "structured_outputs"
    """How the service is told the form of the answer: structured_outputs (vLLM), response_format (OpenAI), or none."""
    prices: Prices = Prices()
    """What a million tokens cost."""

    def client(self, router_address: str | None, name: str | None = None) -> OpenAICompatible:
        """Return what asks the model; ConfigError where neither an endpoint nor a router is there."""
        if self.endpoint is None and router_address is None:
            raise ConfigError(
                f"the judge {name or ''} has no endpoint, and no reward model of this run could be asked: give endpoint"
            )
        return OpenAICompatible(
            self.endpoint,
            self.model,
            router_address=router_address if self.endpoint is None else None,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=self.max_concurrency,
            sampling=self.sampling,
            enforce=self.enforce,
            prices=self.prices,
            name=name,
        )
