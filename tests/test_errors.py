"""The error tree: what is what, what it says, and that it travels."""

import pickle
import re
from collections.abc import Iterator

import pytest

import reward_loop.errors
from reward_loop.errors import (
    DataError,
    RequestFailedError,
    RequestRejected,
    RewardFunctionError,
    RewardLoopError,
    RubricError,
    SchemaVersionError,
    TooManyRequests,
)
from reward_loop.outcome import BatchFailed, Outcome, Reward


def tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for branch in root.__subclasses__():
        yield from tree(branch)


ERRORS = [error for error in tree(RewardLoopError) if error.__module__ == "reward_loop.errors"]


def drawn_tree(docstring: str) -> Iterator[tuple[str, str]]:
    """Each error and its parent, by the branches in front of the names."""
    above = {-1: "Exception"}
    for branches, name in re.findall(r"^    ([│ ]*[├└]── |)([A-Z]\w+)", docstring, re.MULTILINE):
        depth = len(branches) // 4
        above[depth] = name
        yield name, above[depth - 1]


def test_the_tree_is_as_the_docstring_draws_it() -> None:
    drawn = dict(drawn_tree(str(reward_loop.errors.__doc__)))
    assert drawn == {error.__name__: error.__bases__[0].__name__ for error in ERRORS}
    assert len(drawn) == 22


@pytest.mark.parametrize("sample", [None, "7 (uid q7)"])
@pytest.mark.parametrize("error", [error for error in ERRORS if not issubclass(error, RequestRejected)])
def test_every_error_survives_pickling(error: type[RewardLoopError], sample: str | None) -> None:
    sent = error("x=-1 must be positive; raise it", sample)
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is error
    assert (received.message, received.sample, str(received)) == (sent.message, sample, str(sent))


@pytest.mark.parametrize(
    "sent",
    [
        RequestRejected("no such model", 404, "{}", "7"),
        TooManyRequests("slow down", "wait", 1.5, "7"),
        TooManyRequests("slow down"),
        RubricError("it returned NaN", "7", "style"),
        SchemaVersionError("quote it", expected="1.0", got="1.1"),
        RequestFailedError("unknown loss", category="user"),
    ],
)
def test_what_an_error_carries_survives_pickling(sent: RewardLoopError) -> None:
    sent.add_note("a traceback")
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is type(sent)
    assert vars(received) == vars(sent)
    assert str(received) == str(sent)


def test_the_text_names_the_sample_where_there_is_one() -> None:
    assert str(DataError("no text")) == "no text"
    assert str(DataError("no text", "7")) == "sample 7: no text"


def test_a_failed_batch_survives_pickling_with_its_outcomes() -> None:
    outcomes = [Outcome("ok", Reward(1.0, {"acc": 1.0})), Outcome("error", None, "ValueError: boom", 0.5)]
    received = pickle.loads(pickle.dumps(BatchFailed("1 of 2 samples failed", outcomes)))
    assert type(received) is BatchFailed
    assert isinstance(received, RewardFunctionError)
    assert (received.message, received.sample, str(received)) == ("1 of 2 samples failed", None, "1 of 2 samples failed")
    assert received.outcomes == outcomes
