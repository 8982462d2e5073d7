"""The judge of style: a function that runs in this process, under the name by which a model behind MCP would be asked."""

from __future__ import annotations

import ast
from typing import TypedDict


class Verdict(TypedDict):
    """What a judge says."""

    score: float
    reasoning: str


def judge_style(code: str) -> Verdict:
    """Judge documentation, names and spacing, each a third of the score; code that can't be parsed gets 0."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return Verdict(score=0.0, reasoning=f"it is no Python: {error.msg}")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {a.arg for f in functions for a in f.args.args}
    checks = {
        "functions say what they do": bool(functions) and all(ast.get_docstring(function) for function in functions),
        "names are words": all(len(name) > 1 for name in names),
        "it is formatted as usual": ast.unparse(tree).replace('"', "'").split() == code.replace('"', "'").split(),
    }
    missing = [what for what, good in checks.items() if not good]
    return Verdict(
        score=sum(checks.values()) / len(checks), reasoning="not so: " + ", ".join(missing) if missing else "all is well"
    )
