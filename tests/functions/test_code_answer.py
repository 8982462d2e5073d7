"""The program is found in whatever form a model gives it, and no text breaks the search or makes it slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.functions.code_answer import after, completed, preamble, program_in

PROMPT = '''import math


def helper(x):
    return x + 1


def area(r: float) -> float:
    """Return the area.
    >>> area(1)
    """
'''
BODY = "    x = helper(r)\n    return math.pi * r * r"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("Sure:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```py\nprint(1)\n```", "print(1)\n"),
        ("```Python3\nprint(1)\n```", "print(1)\n"),
        ('```python title="a.py"\nprint(1)\n```', "print(1)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("````python\nprint(1)\n````", "print(1)\n"),
        ("```python\r\nprint(1)\r\nprint(2)\r\n```", "print(1)\nprint(2)\n"),
        ("1. first\n   ```python\n   for i in x:\n       print(i)\n   ```", "for i in x:\n    print(i)\n"),
        ("```python\nprint(1)\n```\nbetter:\n```python\nprint(2)\n```", "print(2)\n"),
        ("```python\nprint(1)\n```\nIt prints\n```\n1\n```", "print(1)\n"),
        ("```\nprint(1)\n```\nIt prints\n```\n1\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\n```cpp\nint x;\n```", "print(1)\n"),
        ("```python\nprint(1)", "print(1)"),
        ("```python\nprint(1)\n```\n```python\n```", "print(1)\n"),
        ("Close with ``` and go:\n```python\nprint(1)\n```", "print(1)\n"),
        ("Is `x` ok?\n```python\nprint('`')\n```", "print('`')\n"),
        ("```python print(1)```", "print(1)"),
        ("import sys\nprint(sys.argv)", "import sys\nprint(sys.argv)"),
        ("\n\nfor i in range(3):\n    print(i)\n", "for i in range(3):\n    print(i)"),
        ("<think>```python\nprint(0)\n```</think>\n```python\nprint(1)\n```", "print(1)\n"),
        ("<think>```python\nprint(0)\n```</think>\nThat is all.", "print(0)\n"),
        ("<think>```python\nprint(0)\n```", "print(0)\n"),
        ("print('\ud800')", "print('?')"),
    ],
)
def test_the_program_is_found(response: str, program: str) -> None:
    assert program_in(response) == program


@pytest.mark.parametrize(
    "response",
    [
        "",
        "  \n",
        "The answer is 42.",
        "```cpp\nint x;\n```",
        "```python\n\n```",
        "For all x we import nothing from class to class.",
        "``` ```",
    ],
)
def test_a_response_without_python_has_no_program(response: str) -> None:
    assert program_in(response) is None
    assert completed(PROMPT, "area", response) is None


def same_lines(text: str | None) -> list[str]:
    return [line for line in (text or "").splitlines() if line.strip()]


@pytest.mark.parametrize(
    "response",
    [
        BODY,
        f"{BODY}\n",
        f"\n{BODY}\n\n\nprint(area(1))\nThis is right because of pi.",
        f"```python\n{BODY}\n```",
        "x = helper(r)\nreturn math.pi * r * r",
        "x = helper(r)\n    return math.pi * r * r",
        "```python\nx = helper(r)\nreturn math.pi * r * r\n```",
    ],
)
def test_a_body_completes_the_prompt(response: str) -> None:
    assert same_lines(completed(PROMPT, "area", response)) == same_lines(PROMPT + BODY)


@pytest.mark.parametrize(
    ("body", "indented"),
    [
        ("for i in r:\n    print(i)", "    for i in r:\n        print(i)"),
        ("for i in r:\n    print(i)\nreturn 1", "    for i in r:\n        print(i)\n    return 1"),
        ("if r:\n        return 1\n    return 2", "    if r:\n        return 1\n    return 2"),
        ("    x = [\n1,\n]\n    return x", "    x = [\n"),
        ("    return (r\n    )\n# over\n", "    return (r\n    )\n# over\n"),
    ],
)
def test_a_body_is_indented_where_its_indentation_was_lost(body: str, indented: str) -> None:
    assert same_lines(completed(PROMPT, "area", body)) == same_lines(PROMPT + indented)


def test_a_whole_function_gets_what_the_prompt_has_before_it() -> None:
    code = "def area(r):\n    return math.pi * helper(r)\n"
    assert same_lines(completed(PROMPT, "area", f"```python\n{code}```")) == same_lines(preamble(PROMPT, "area") + code)
    assert "def area" not in preamble(PROMPT, "area")


def test_imports_from_the_future_stay_on_top() -> None:
    code = "from __future__ import annotations\nimport os\ndef f(): pass\n"
    program = after("import math\n", code)
    assert same_lines(program) == ["from __future__ import annotations", "import math", "import os", "def f(): pass"]
    compile(program, "program", "exec")


PIECES = [
    *(
        "```",
        "````",
        "```python",
        "```py\n",
        "```cpp",
        "`",
        "\n",
        " ",
        "\t",
        "\r\n",
        "</think>",
        "<think>",
        "def area(",
        "def f",
        ":",
    ),
    *(
        "class ",
        "import ",
        "from ",
        " import ",
        "return",
        "x = 1",
        "for i in",
        "print(",
        "    ",
        ")",
        '"""',
        "\0",
        "\ud800",
        "é",
        "@",
    ),
    "from __future__ import annotations\n",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)))
def test_no_text_breaks_the_search(text: str) -> None:
    for program in (program_in(text), completed(PROMPT, "area", text)):
        assert program is None or (program.strip() and program.encode())
    assert completed(text, "area", BODY)


@given(st.text(st.characters(codec="utf-8", exclude_characters="`\r"), min_size=1).filter(str.strip), st.text(), st.text())
def test_a_last_block_is_found_whatever_stands_around_it(code: str, before: str, after: str) -> None:
    block = f"{before.replace('<', '')}\n```python\n{code}\n```\n{after.replace('`', '').replace('<', '')}"
    found = program_in(block)
    assert found is not None
    assert same_stripped(found) == same_stripped(code)


def same_stripped(code: str) -> list[str]:
    return [line.strip() for line in code.split("\n") if line.strip()]


@pytest.mark.parametrize(
    "piece",
    [
        "`",
        "```",
        "``` ",
        "```python",
        "a",
        " ",
        "\t",
        "\n",
        " \n",
        "for ",
        "x",
        "x ",
        "from a ",
        "import a",
        "@",
        "</think>",
        "if:",
    ],
)
def test_an_eighth_of_a_megabyte_takes_linear_time(piece: str) -> None:
    text = piece * (125_000 // len(piece))
    started = time.perf_counter()
    for response in (text, f"```python\n{text}", f"    {text}", f"def area({text}"):
        program_in(response)
        completed(PROMPT, "area", response)
    assert time.perf_counter() - started < 10.0
