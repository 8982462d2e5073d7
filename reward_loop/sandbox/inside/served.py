"""The program's side of a test run: it executes source and answers calls of what that defines.

Invariant: nothing here is trusted by anyone: it runs in the program's process and within its reach. What it sends is checked
by the judge as if the program had written it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from reward_loop.sandbox.inside import program
from reward_loop.sandbox.inside.channel import Channel, Gone
from reward_loop.sandbox.inside.codec import decode, encode

# Not "__main__": what a solution does only as a main program, such as reading input, is no part of it.
_MODULE = "solution"


class Objects:
    """The opaque objects of a program by their numbers; they live as long as it does."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def number_of(self, value: object) -> int:
        """Return the number of an object: the same for the same object."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.kept)
            self.kept.append(value)
        return number

    def object_of(self, number: int) -> object:
        """Return the object that has this number."""
        return self.kept[number]


def serve(source: bytes, descriptor: int) -> None:
    """Execute source, say what it defines, and answer calls until the judge hangs up."""
    channel, objects = Channel(descriptor), Objects()
    program.open_streams()
    namespace = program.fresh_main(_MODULE)
    reply = _answer(0, lambda: _loaded(source, namespace, objects), objects)
    try:
        _send(channel, reply, 0)
        while True:
            sequence, number, attribute, arguments, keywords = decode(channel.receive(), objects.object_of)
            target = objects.object_of(number)
            function = partial(_call, target, attribute)
            _send(channel, _answer(sequence, partial(function, *arguments, **keywords), objects), sequence)
    except Gone:
        return


def _send(channel: Channel, frame: bytes, sequence: int) -> None:
    try:
        channel.send(frame)
    except ValueError as error:  # too large
        channel.send(encode((sequence, False, "ValueError", str(error)), id))


def _call(target: Any, attribute: str | None, *arguments: object, **keywords: object) -> object:
    function = target if attribute is None else getattr(target, attribute)
    return function(*arguments, **keywords)


def _answer(sequence: int, work: Callable[[], object], objects: Objects) -> bytes:
    """Do the work and encode its result or its exception; neither may end the process."""
    try:
        return encode((sequence, True, work()), objects.number_of)
    except BaseException as error:  # noqa: BLE001  # SystemExit included: the judge's side decides what it means
        name, message = type(error).__name__, _text_of(error)
        return encode((sequence, False, name, message), objects.number_of)


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
        if isinstance(error, SyntaxError) and error.text:
            text = f"{text}: {error.text.strip()}"
        return text[:1000]
    except BaseException:  # noqa: BLE001  # a program's exception may fail to print
        return ""


def _loaded(source: bytes, namespace: dict[str, Any], objects: Objects) -> dict[str, object]:
    exec(program.compiled(source), namespace)  # noqa: S102  # what a sandbox is for
    imported, with_star = _imports(source)
    names: dict[str, object] = {}
    for name, value in list(namespace.items()):
        if name.startswith("_") or name in imported or isinstance(value, ModuleType):
            continue
        if with_star and getattr(value, "__module__", _MODULE) != _MODULE:
            continue
        if callable(value) or _is_plain(value, objects):
            names[name] = value
    return names


def _is_plain(value: object, objects: Objects) -> bool:
    before = len(objects.kept)
    try:
        encode(value, objects.number_of)
    except (ValueError, RecursionError):
        return False
    return len(objects.kept) == before and not hasattr(value, "__next__")


def _imports(source: bytes) -> tuple[set[str], bool]:
    """Return the names that import statements bind, and whether one of them imports everything."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.asname or alias.name.partition(".")[0] for node in statements for alias in node.names}
    return names, "*" in names
