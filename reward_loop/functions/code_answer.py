"""Finds the program in a response: the last Python block, plain code, or the completion of a prompt.

Invariants: every function is pure, raises nothing and takes time linear in its text; nothing is parsed or compiled here,
for hostile text can exhaust a compiler: what is no Python fails in the sandbox.
"""

from __future__ import annotations

import re
import textwrap

_FENCE = re.compile(r"`{3,}+[ \t]*+([\w+#.-]*+)")
_PYTHON = re.compile(r"py(?:thon)?[\d.]*+", re.IGNORECASE)
_THOUGHT_ENDS = "</think>"

# A line that only code begins with; prose begins with "from", "for", "if" and "class" as well.
_STATEMENT = re.compile(
    r"^[ \t]*+(?:(?:async[ \t]++)?def[ \t]++\w++[ \t]*+\(|class[ \t]++\w++[ \t]*+[(:]|@\w|print[ \t]*+\(|\w++[ \t]*+=[^=]"
    r"|import[ \t]++[\w.]++[ \t]*+(?:$|,|;|as\b|#)|from[ \t]++[\w.]++[ \t]++import\b|(?:return|yield)\b"
    r"|(?:for|while|if|try|with)\b[^\n]*:$)",
    re.MULTILINE,
)
_FUTURE = re.compile(r"^from[ \t]++__future__[ \t]++import[^\n]*+\n?", re.MULTILINE)
_STAYS_INSIDE = re.compile(r"\s|$|[#)\]}]")


def program_in(response: str) -> str | None:
    """Return the last Python block, else the last block that names no language, else a response that is code; else None.

    The last block may be unclosed; an empty one does not count. What comes before `</think>` is read only if nothing follows.
    """
    thought, ended, said = _encodable(response).rpartition(_THOUGHT_ENDS)
    return _last_block(said) or _plain(said) or (_last_block(thought) if ended else None)


def completed(prompt: str, entry_point: str, response: str) -> str | None:
    """Return the program of a response that completes `prompt` or defines `entry_point` anew; None if it has no code.

    What is defined anew gets what the prompt has before it: imports and functions that it may call.
    """
    code = program_in(response)
    if code is None:
        return None
    if _definition(entry_point).search(code):
        return after(preamble(prompt, entry_point), code)
    return f"{prompt.rstrip()}\n{_as_body(code)}\n"


def preamble(prompt: str, entry_point: str) -> str:
    """Return what stands before the function that a prompt leaves to be completed."""
    definition = _definition(entry_point).search(prompt)
    return prompt[: definition.start()] if definition else ""


def after(before: str, code: str) -> str:
    """Return `code` behind `before`, except its imports from __future__, which Python wants on top."""
    futures = "".join(f"{line.rstrip()}\n" for line in _FUTURE.findall(code))
    return f"{futures}{before.rstrip()}\n\n{_FUTURE.sub('', code) if futures else code}"


def _definition(name: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:async[ \t]++)?def[ \t]++{re.escape(name)}[ \t]*+\(", re.MULTILINE)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")


def _last_block(text: str) -> str | None:
    blocks = [(language, code) for language, code in _blocks(text) if code.strip()]
    python = [code for language, code in blocks if _PYTHON.fullmatch(language)]
    unnamed = [code for language, code in blocks if not language]
    alike = [code for code in unnamed if _STATEMENT.search(code)]  # rather than a block that shows its output
    return next((found[-1] for found in (python, alike, unnamed) if found), None)


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return language and content of each block.

    A fence that names Python always opens one, so that a stray fence before it does not turn inside out what follows.
    """
    blocks: list[tuple[str, str]] = []
    language: str | None = None
    begins = 0
    for fence in _FENCE.finditer(text):
        if language is not None:
            blocks.append((language, _content(text[begins : fence.start()])))
        language = fence[1] if language is None or _PYTHON.fullmatch(fence[1]) else None
        begins = fence.end()
    if language is not None:
        blocks.append((language, _content(text[begins:])))
    return blocks


def _content(block: str) -> str:
    """Drop the rest of the line that opens the block, unless it is all that there is."""
    rest_of_line, newline, lines = block.partition("\n")
    return textwrap.dedent(lines) if newline else rest_of_line.strip()


def _plain(text: str) -> str | None:
    return text.strip("\n") if _STATEMENT.search(text) and not _FENCE.search(text) else None


def _as_body(code: str) -> str:
    """Indent the body of a function, and cut off what a model wrote after it."""
    first, *rest = code.strip("\n").split("\n")
    if first[:1] in (" ", "\t"):
        inside = next((number for number, line in enumerate(rest) if not _STAYS_INSIDE.match(line)), len(rest))
        return "\n".join([first, *rest[:inside]])
    margins = [len(line) - len(line.lstrip()) for line in rest if line.strip()]
    # Only the first line lost its indentation where all others have one that is not due to the first.
    lost = min(margins, default=0)
    if lost and not (first.rstrip().endswith(":") and margins[0] == lost):
        return "\n".join([" " * lost + first, *rest])
    return textwrap.indent("\n".join([first, *rest]), "    ")
