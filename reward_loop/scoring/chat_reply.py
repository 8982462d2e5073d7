"""What a chat completion holds: the text, and beside it the log-probabilities, the tokens counted and why it ended.

Invariant: `text` is what the model wrote; where it wrote none, asking for it is an error, never an empty text.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from reward_loop.errors import RewardServerError

_Finite = Annotated[float, Field(allow_inf_nan=False)]


class ChatUsage(BaseModel, frozen=True):
    """The tokens that a service counted."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.completion_tokens if self.total_tokens is None else self.total_tokens


class TokenLogprob(BaseModel, frozen=True):
    """A token and the natural logarithm of its probability."""

    token: str
    logprob: _Finite


class TokenLogprobs(TokenLogprob, frozen=True):
    """A token that was written, and others that were possible in its place."""

    top_logprobs: tuple[TokenLogprob, ...] = ()


class ChatLogprobs(BaseModel, frozen=True):
    """The log-probabilities of the tokens of one text, in order."""

    content: tuple[TokenLogprobs, ...] | None = None


class ChatMessage(BaseModel, frozen=True):
    """What the model wrote: `content` is None where it only thought (`reasoning`) or called tools."""

    role: str = "assistant"
    content: str | None
    reasoning: str | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None


class ChatChoice(BaseModel, frozen=True):
    """One of the `n` completions; `finish_reason` is "length" where it was cut off at max_tokens."""

    index: int = 0
    message: ChatMessage
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None

    @property
    def text(self) -> str:
        """What the model wrote; RewardServerError where it wrote no text."""
        if self.message.content is None:
            raise RewardServerError(
                f"the model wrote no text (finish_reason={self.finish_reason!r}); raise max_tokens or ask otherwise"
            )
        return self.message.content


class ChatReply(BaseModel, frozen=True):
    """What the model answered.

    `model` is the name that the service gave, `usage` None where it counted nothing, `version` that of the weights that wrote,
    None where the service does not say.
    """

    choices: tuple[ChatChoice, ...] = Field(min_length=1)
    usage: ChatUsage | None = None
    model: str | None = None
    id: str | None = None
    version: int | None = None

    @property
    def text(self) -> str:
        """The text of the first choice; RewardServerError where there is none."""
        return self.choices[0].text

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended."""
        return self.choices[0].finish_reason

    @property
    def tokens(self) -> int:
        """All tokens that the service counted."""
        return self.usage.tokens if self.usage else 0
