"""What of the user's code another process must have before it can score: the loaded files and the registered rules."""

from __future__ import annotations

from dataclasses import dataclass

from reward_loop.functions.custom import load_module, user_modules
from reward_loop.functions.rules import adopt_rules, registered_rules


@dataclass(frozen=True, slots=True)
class UserCode:
    """The code of the process in which `of_this_process` was called, to be loaded in another; it pickles."""

    modules: tuple[str, ...]
    rules: tuple[tuple[str, bool, bytes], ...]

    @classmethod
    def of_this_process(cls) -> UserCode:
        """Return what has been loaded and registered so far."""
        return cls(tuple(user_modules()), tuple(registered_rules()))

    def load(self) -> None:
        """Load the files and take over the rules that they do not register; ConfigError if a file can't be imported."""
        for path in self.modules:
            load_module(path)
        adopt_rules(self.rules)
