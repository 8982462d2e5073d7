"""Short mathematical expressions in plain text ("2 pi r^2/(x+1)"), read into sympy and compared.

Invariants: nothing is evaluated as Python (sympy's own parser calls `eval`, and this text comes from a model); what
could grow without bound is refused before it is computed. Answers cost milliseconds; a contrived identity can
still keep sympy's simplify busy for longer, which only the deadline of a killable process ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import sympy

MAX_CHARS = 200
_MAX_DEPTH = 20
_MAX_POWER_BITS = 20_000
_MAX_ROOT = 100
_MAX_ROOT_BITS = 2_000
_MAX_DEGREE = 12
_MAX_SYMBOLS = 6
_MAX_FUNCTIONS = 4
_MAX_OPERATIONS = 60

_FUNCTIONS = {
    "sqrt": sympy.sqrt,
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "cot": sympy.cot,
    "sec": sympy.sec,
    "csc": sympy.csc,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "log": sympy.log,
    "ln": sympy.log,
    "exp": sympy.exp,
}
_CONSTANTS = {"pi": sympy.pi, "π": sympy.pi, "e": sympy.E, "i": sympy.I}
_NAMES = "|".join(sorted([*_FUNCTIONS, "pi"], key=len, reverse=True))
_TOKEN = re.compile(rf" *([0-9]+(?:\.[0-9]+)?|\.[0-9]+|{_NAMES}|[a-zA-Z\u0391-\u03c9]|[-+*/^()])")
_NAME = re.compile(_NAMES)
_WORD = re.compile(r"[^\W\d_]{3,}")
_SPACED_DIGITS = re.compile(r"[0-9.] +[0-9.]")


class UnreadableError(ValueError):
    """The text is no expression within the bounds of this reader."""


def equal_expressions(first: str, second: str) -> bool:
    """Whether the difference of both simplifies to 0; UnreadableError where either is no expression."""
    difference = read_expression(first) - read_expression(second)
    symbols = sorted(difference.free_symbols, key=str)
    functions = difference.atoms(sympy.Function)
    # Measured on random trees: all that kept simplify busy for seconds had nested functions or more than these.
    if len(symbols) > _MAX_SYMBOLS or len(functions) > _MAX_FUNCTIONS or difference.count_ops() > _MAX_OPERATIONS:
        raise UnreadableError(f"{first[:80]!r} - {second[:80]!r} is too large to simplify")
    if any(function.args[0].has(sympy.Function) for function in functions):
        raise UnreadableError(f"a function of a function in {first[:80]!r} - {second[:80]!r}")
    # One point decides nearly every wrong answer, in a hundredth of the time of simplify.
    point: dict[sympy.Basic, sympy.Basic | float] = {
        symbol: sympy.Rational(7 * index + 16, 23) for index, symbol in enumerate(symbols)
    }
    value = difference.evalf(15, subs=point)
    if value.is_number and value.is_finite and abs(value) > 1e-6:
        return False
    return bool(sympy.simplify(difference) == 0)


def read_expression(text: str) -> sympy.Expr:
    """The sympy expression that the text spells; UnreadableError if it is none, is a word, or would grow too large."""
    if len(text) > MAX_CHARS or _WORD.search(_NAME.sub(" ", text)) or _SPACED_DIGITS.search(text):
        raise UnreadableError(f"{text[:80]!r} is a word, a list of numbers or too long")
    reader = _Reader(list(_tokens(text)))
    expression = reader.sum(0)
    if reader.next:
        raise UnreadableError(f"{text!r} goes on after an expression")
    return expression


def _tokens(text: str) -> Iterator[str]:
    text, start = text.strip(), 0
    while start < len(text):
        match = _TOKEN.match(text, start)
        if match is None:
            raise UnreadableError(f"{text!r} has {text[start]!r}")
        yield match[1]
        start = match.end()


class _Reader:
    """Recursive descent over tokens; `depth` counts the parentheses, powers and signs around."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]

    @property
    def next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def sum(self, depth: int) -> sympy.Expr:
        total = self._product(depth)
        while self.next and self.next in "+-":
            total = total + self._product(depth) if self._tokens.pop() == "+" else total - self._product(depth)
        return total

    def _product(self, depth: int, implicit_only: bool = False) -> sympy.Expr:
        product = self._signed(depth)
        while self.next and self.next not in "+-)^":
            if self.next in "*/":
                if implicit_only:
                    break
                times = self._tokens.pop() == "*"
                factor = self._signed(depth)
                product = product * factor if times else _quotient(product, factor)
            elif implicit_only and self.next in _FUNCTIONS:
                break
            else:
                product = product * self._power(depth)
        return product

    def _signed(self, depth: int) -> sympy.Expr:
        if depth > _MAX_DEPTH:
            raise UnreadableError(f"more than {_MAX_DEPTH} levels")
        if self.next and self.next in "+-":
            return self._signed(depth + 1) if self._tokens.pop() == "+" else -self._signed(depth + 1)
        return self._power(depth)

    def _power(self, depth: int) -> sympy.Expr:
        base = self._atom(depth)
        if self.next != "^":
            return base
        self._tokens.pop()
        return _power(base, self._signed(depth + 1))

    def _atom(self, depth: int) -> sympy.Expr:
        piece = self._tokens.pop() if self._tokens else ""
        if piece == "(":
            inner = self.sum(depth + 1)
            if not self._tokens or self._tokens.pop() != ")":
                raise UnreadableError("a parenthesis never closes")
            return inner
        if piece in _FUNCTIONS:
            return self._call(piece, depth + 1)
        if piece in _CONSTANTS:
            return _CONSTANTS[piece]
        if piece[:1].isalpha():
            return sympy.Symbol(piece)
        if piece[:1] in tuple("0123456789."):
            return sympy.Rational(piece)
        raise UnreadableError(f"{piece!r} stands where a number or a name must")

    def _call(self, name: str, depth: int) -> sympy.Expr:
        """f(x), f x, f 2x (up to the next function) and f^2 x; f^(-1) is refused, for it means 1/f or the inverse."""
        exponent = sympy.Integer(1)
        if self.next == "^":
            self._tokens.pop()
            exponent = self._atom(depth)
            if not exponent.is_Integer or exponent <= 0:
                raise UnreadableError(f"{name}^({exponent}) is ambiguous")
        argument = self._atom(depth) if self.next == "(" else self._product(depth, implicit_only=True)
        return _power(_FUNCTIONS[name](argument), exponent)


def _quotient(numerator: sympy.Expr, denominator: sympy.Expr) -> sympy.Expr:
    if denominator == 0:
        raise UnreadableError("a division by 0")
    return numerator / denominator


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    if not isinstance(exponent, sympy.Rational):
        return base**exponent
    if exponent.q > _MAX_ROOT:
        raise UnreadableError(f"the root {exponent} is out of bounds")
    if isinstance(base, sympy.Rational):
        bits = max(int(base.p).bit_length(), int(base.q).bit_length())
        size, bound = bits * abs(exponent), _MAX_POWER_BITS
        # Of a root with the degree q, sympy computes the power q - 1 first.
        if exponent.q > 1 and bits * exponent.q > _MAX_ROOT_BITS:
            raise UnreadableError(f"the root {exponent} is out of bounds")
    else:
        inner = (abs(power.exp) for power in base.atoms(sympy.Pow) if power.exp.is_Rational and abs(power.exp) > 1)
        size, bound = prod(inner, start=abs(exponent)), _MAX_DEGREE
    if size > bound or (base == 0 and exponent <= 0):
        raise UnreadableError(f"the power {exponent} is out of bounds")
    return base**exponent
