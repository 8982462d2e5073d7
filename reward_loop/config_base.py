"""What every section of the configuration is: frozen, strict, and readable like a DictConfig."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Delay = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Config(BaseModel):
    """One section; `get`, `[name]` and `in` work as on a DictConfig, so that managers of verl run unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the setting called `name`, or `default` where this section has no such setting."""
        return getattr(self, name) if name in self else default

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"{name} is not in {type(self).__name__}, which has {', '.join(type(self).model_fields)}")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in type(self).model_fields


def unmet(key: str, requirement: str) -> PydanticCustomError:
    """Build the error of a rule that spans settings; `key` (relative to its section) is the one to change."""
    return PydanticCustomError("unmet", "{requirement}", {"key": key, "requirement": requirement})
