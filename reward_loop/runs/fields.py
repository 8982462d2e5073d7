"""Which field of a rollout file holds what, and what a row says in it.

Invariants: names are settled once, before the first row is scored; after that a row that does not hold what it should
becomes a `RowError` (a value, so that one bad row can't stop a run of a million). Rows are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, cast

import numpy as np

from reward_loop.errors import ConfigError, DataError

Row = dict[str, Any]
Message = dict[str, Any]
ResponseKind = Literal["text", "ids"]
Role = Literal["response", "data_source", "ground_truth", "prompt", "extra_info", "uid"]

CONVENTIONS: Mapping[Role, tuple[str, ...]] = {
    "response": ("response", "responses", "completion", "solution_str", "output", "generated_text"),
    "data_source": ("data_source", "source", "dataset"),
    "ground_truth": ("reward_model.ground_truth", "ground_truth", "answer", "solution", "target"),
    "prompt": ("prompt", "prompts", "raw_prompt", "messages", "question", "problem"),
    "extra_info": ("extra_info",),
    "uid": ("uid", "group_id", "prompt_id"),
}
"""The names that each role is looked for under, the first that exists wins."""

_MISSING = object()


@dataclass(frozen=True, slots=True)
class RowError:
    """Row `row` of the input can't be scored; `error` says why."""

    row: int
    error: DataError


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Where each part of a sample lies: a field's name, or a dotted path into it (`reward_model.ground_truth`)."""

    response: str
    data_source: str | None = None
    ground_truth: str | None = None
    prompt: str | None = None
    extra_info: str | None = None
    uid: str | None = None
    constant_data_source: str | None = None
    """The data source of every row, instead of a field."""
    response_kind: ResponseKind = "text"
    """What the responses of this file are: text (chat messages included) or token ids."""

    @classmethod
    def detect(
        cls,
        names: Sequence[str],
        first_rows: Sequence[Row] = (),
        *,
        response: str | None = None,
        data_source: str | None = None,
        ground_truth: str | None = None,
        prompt: str | None = None,
        extra_info: str | None = None,
        uid: str | None = None,
        constant_data_source: str | None = None,
    ) -> FieldMap:
        """Take the given names, and for the other roles the first conventional name that exists and is still free.

        Raises DataError for a given name that does not exist, and when nothing holds the response or the data source.
        """
        if data_source is not None and constant_data_source is not None:
            raise ConfigError(f"--data-source-field={data_source} and --data-source={constant_data_source} contradict; keep one")
        given: dict[Role, str | None] = {
            "response": response,
            "data_source": data_source,
            "ground_truth": ground_truth,
            "prompt": prompt,
            "extra_info": extra_info,
            "uid": uid,
        }
        paths = _known_paths(names, first_rows)
        for role, path in given.items():
            if path is not None and path not in paths:
                raise DataError(_no_such_field(role, path, paths))
        found = _complete(given, paths, skip_data_source=constant_data_source is not None)
        _require(found, names, constant_data_source)
        kinds: list[ResponseKind] = [kind for row in first_rows if (kind := _kind(look_up(row, found["response"])))]
        return cls(
            **cast("dict[Role, Any]", found),
            constant_data_source=constant_data_source,
            response_kind=kinds[0] if kinds else "text",
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FieldMap:
        """Undo `as_dict`. Raises DataError for keys that it does not write."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(plain) - known):
            raise DataError(f"a field map has no {unknown}; it has {sorted(known)}")
        if not isinstance(plain.get("response"), str):
            raise DataError(f"a field map names the response's field; this one does not: {dict(plain)}")
        return cls(**plain)

    def columns(self, names: Sequence[str]) -> list[str]:
        """The ones of the top-level fields `names` that the map needs."""
        roles: tuple[Role, ...] = tuple(CONVENTIONS)
        paths = [path for role in roles if (path := getattr(self, role)) is not None]
        return [name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)]

    def as_dict(self) -> dict[str, str | None]:
        """The map as JSON can hold it."""
        return asdict(self)


def look_up(row: Mapping[str, Any], path: str | None) -> Any:
    """What `row` holds at `path`; None where there is nothing. A field whose own name has dots comes first."""
    value = _MISSING if path is None else _walk(row, path)
    return None if value is _MISSING else value


def response_of(row: Row, fields: FieldMap) -> str | list[int]:
    """The graded text of `row`, or its token ids where the file holds those. Raises DataError for anything else."""
    value = _plain(look_up(row, fields.response))
    if value == []:  # no token or no message: an empty response, in either kind of file
        return "" if fields.response_kind == "text" else []
    kind = _kind(value)
    if kind is None:
        raise DataError(
            f"field {fields.response!r} holds {_shown(value)}; a response is text, chat messages or a list of token ids"
        )
    if kind != fields.response_kind:
        raise DataError(
            f"field {fields.response!r} holds {_words(kind)}, but the first rows of the file hold "
            f"{_words(fields.response_kind)}; split the file by kind"
        )
    return cast("list[int]", value) if kind == "ids" else _graded_text(value)


def prompt_of(row: Row, fields: FieldMap) -> list[Message] | list[int] | None:
    """The prompt of `row` as chat messages (a text becomes one user message) or as token ids; None without one."""
    value = _plain(look_up(row, fields.prompt))
    if value is None or (isinstance(value, list) and (not value or _is_chat(value) or _is_ids(value))):
        return value or None
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    raise DataError(f"field {fields.prompt!r} holds {_shown(value)}; a prompt is text, chat messages or a list of token ids")


def data_source_of(row: Row, fields: FieldMap) -> str:
    """The data source of `row`. Raises DataError where it is not text."""
    if fields.constant_data_source is not None:
        return fields.constant_data_source
    value = look_up(row, fields.data_source)
    if not isinstance(value, str):
        raise DataError(
            f"field {fields.data_source!r} holds {_shown(value)}; a data source is text "
            "(--data-source NAME gives all rows the same)"
        )
    return value


def reward_model_of(row: Row, fields: FieldMap) -> dict[str, Any]:
    """The row's own `reward_model` where the ground truth lies in it, else one that holds the ground truth."""
    own = row.get("reward_model")
    if fields.ground_truth == "reward_model.ground_truth" and isinstance(own, dict):
        return cast("dict[str, Any]", own)
    return {"ground_truth": look_up(row, fields.ground_truth)}


def extra_info_of(row: Row, fields: FieldMap) -> dict[str, Any]:
    """The extra info of `row`, empty where there is none. Raises DataError where it is no object."""
    value = look_up(row, fields.extra_info)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"field {fields.extra_info!r} holds {_shown(value)}; extra info is an object with named values")
    return cast("dict[str, Any]", value)


def message_text(content: object) -> str:
    """The text of a chat message's content: a string, or the text parts of a list of parts."""
    if content is None:  # a message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        parts = cast("list[dict[str, Any]]", content)
        return "".join(str(part["text"]) for part in parts if part.get("type") == "text" and part.get("text"))
    raise DataError(f"a message's content is {_shown(content)}; it is text or a list of parts with a type")


def _walk(row: Mapping[str, Any], path: str) -> Any:
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = cast("Mapping[str, Any]", value)[key]
    return value


def _known_paths(names: Iterable[str], first_rows: Sequence[Row]) -> list[str]:
    """Every field, and every dotted path into the objects of the first rows, in order."""
    paths = dict.fromkeys(names)
    for row in first_rows:
        pending = list(row.items())
        for path, value in pending:
            if isinstance(value, dict):
                pending += [(f"{path}.{key}", below) for key, below in cast("dict[str, Any]", value).items()]
            paths[path] = None
    return list(paths)


def _complete(given: Mapping[Role, str | None], paths: Sequence[str], *, skip_data_source: bool) -> dict[Role, str]:
    found: dict[Role, str] = {role: path for role, path in given.items() if path is not None}
    for role, conventional in CONVENTIONS.items():
        if role in found or (role == "data_source" and skip_data_source):
            continue
        free = (path for path in conventional if path in paths and path not in found.values())
        if (path := next(free, None)) is not None:
            found[role] = path
    return found


def _require(found: Mapping[Role, str], names: Sequence[str], constant_data_source: str | None) -> None:
    remedies: list[str] = []
    if "response" not in found:
        remedies.append("no field holds the response: name it with --response-field FIELD")
    if "data_source" not in found and constant_data_source is None:
        remedies.append(
            "no field holds the data source: name it with --data-source-field FIELD, or give all rows one with --data-source NAME"
        )
    if remedies:
        raise DataError(f"{'; '.join(remedies)}. The input's fields are: {', '.join(names)}")


def _no_such_field(role: Role, path: str, paths: Sequence[str]) -> str:
    flag = f"--{role.replace('_', '-')}-field"
    nearest = get_close_matches(path, paths, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    return f"{flag}={path}: the input has no such field; {hint}its fields are: {', '.join(paths)}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _kind(value: Any) -> ResponseKind | None:
    value = _plain(value)
    if isinstance(value, str) or _is_chat(value):
        return "text"
    return "ids" if _is_ids(value) else None


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) and "role" in message for message in value)


def _graded_text(value: str | list[Message]) -> str:
    if isinstance(value, str):
        return value
    for message in reversed(value):
        if message["role"] == "assistant":
            return message_text(message.get("content"))
    raise DataError("the response's chat messages hold none of the assistant; only an assistant's message is graded")


def _words(kind: ResponseKind) -> str:
    return "token ids" if kind == "ids" else "text"


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '…'}"
