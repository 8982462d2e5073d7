"""What every JSON body is: read strictly, and refused with a reason that names the field."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from reward_loop.errors import DataError

SeqId = Annotated[int, Field(ge=1, lt=1 << 63)]
"""The place of a request among those of one model."""
Number = Annotated[int, Field(ge=0, lt=1 << 63)]
Name = Annotated[str, Field(min_length=1, max_length=4096)]

_MOST_ERRORS = 3


class Body(BaseModel):
    """One JSON body. A field that is not known is refused: it may change what is asked for."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        revalidate_instances="always",  # of dataclasses too, which hold whatever they were given
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read a body. Raises DataError for one that is not as it should be."""
        try:
            return cls.model_validate_json(body or b"{}")
        except ValidationError as error:
            raise DataError(f"the body is no {cls.__name__}: {_told(error)}") from None

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """Make one to send. Raises DataError for fields that no server would read."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise DataError(f"this can't be sent as {cls.__name__}: {_told(error)}") from None

    def to_json(self) -> dict[str, Any]:
        """Return it as it is sent: without what is None. Raises DataError for metadata that JSON has no words for."""
        try:
            return self.model_dump(mode="json", exclude_none=True)
        except PydanticSerializationError as error:
            raise DataError(f"this can't be sent as {type(self).__name__}: {error}") from None


class Request(Body):
    """One that is sent by itself."""

    type: str | None = None
    """What the SDK calls it; not looked at."""


class OpenBody(Body):
    """One of which only the fields that are known are read: what else it brings changes nothing."""

    model_config = ConfigDict(extra="ignore")


def _told(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    told = [f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}" for problem in problems[:_MOST_ERRORS]]
    more = len(problems) - len(told)
    return "; ".join(told)[:1000] + (f"; and {more} more" if more else "")
