"""What the coding environment asks for, and the submissions of an agent that gets better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write: what it should do, tests that the agent sees, tests that it doesn't, and an agent's submissions."""

    name: str
    description: str
    public_tests: tuple[str, ...]
    hidden_tests: tuple[str, ...]
    submissions: tuple[str, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """All tests."""
        return self.public_tests + self.hidden_tests


TASKS = (
    Task(
        "running_maximum",
        "Write running_maximum(numbers): a list whose item i is the largest of the first i + 1 numbers.",
        ("assert running_maximum([1, 3, 2]) == [1, 3, 3]", "assert running_maximum([]) == []"),
        ("assert running_maximum([-5, -7, -2]) == [-5, -5, -2]", "assert running_maximum([4]) == [4]"),
        (
            "def running_maximum(numbers):\n    return sorted(numbers)\n",
            "def running_maximum(l):\n    m=0\n    r=[]\n    for n in l:\n        m=max(m,n);r.append(m)\n    return r\n",
            "from itertools import accumulate\n\n\ndef running_maximum(numbers):\n"
            '    """Return the largest number so far, for each place."""\n    return list(accumulate(numbers, max))\n',
        ),
    ),
    Task(
        "is_palindrome",
        "Write is_palindrome(text): whether the letters of a text read the same both ways, in whatever case.",
        ("assert is_palindrome('Anna')", "assert not is_palindrome('Bob!a')"),
        ("assert is_palindrome('A man, a plan, a canal: Panama')", "assert is_palindrome('')"),
        (
            "def is_palindrome(text):\n    while True:\n        pass\n",
            "def is_palindrome(t):\n    t=t.lower()\n    return t==t[::-1]\n",
            'def is_palindrome(text):\n    """Compare the letters with themselves, backwards."""\n'
            "    letters = [letter for letter in text.lower() if letter.isalpha()]\n    return letters == letters[::-1]\n",
        ),
    ),
)
