"""The directory of an unfinished run: whatever ended it, no row is lost and none is there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import DataError
from reward_loop.runs.partial import PartialRun
from reward_loop.runs.scored import Tally

RUN = {"contents of the input": "abc", "reward_model.on_error": "raise"}
Begin = Callable[..., PartialRun]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "new" / "out.jsonl"


@pytest.fixture
def begin(output: Path) -> Iterator[Begin]:
    """Begin a run as another process would: the one before it has ended, in whatever way."""
    begun: list[PartialRun] = []

    def begin(run: dict[str, Any] = RUN, *, resume: bool = False, overwrite: bool = False) -> PartialRun:
        for earlier in begun:
            earlier.close()
        begun.append(PartialRun(output))
        begun[-1].begin(run, resume=resume, overwrite=overwrite)
        return begun[-1]

    yield begin
    for run in begun:
        run.close()


def tallies(rows: int) -> dict[str, Tally]:
    return {"x": Tally(rows=rows)}


def fields(reward: float) -> dict[str, Any]:
    return {"reward": reward}


# -- what is found again ---------------------------------------------------------------------------------------------


def test_finished_chunks_and_journals_are_found_again(begin: Begin) -> None:
    run = begin()
    run.record(0, {0: fields(1.0), 1: fields(0.0)})
    run.finish(0, tallies(2))
    run.record(1, {5: fields(1.0)})
    run.record(1, {3: fields(0.5)})
    again = begin(resume=True)
    assert again.finished == {0: tallies(2)}
    assert again.recorded(1) == {5: fields(1.0), 3: fields(0.5)}
    assert again.recorded(0) == again.recorded(2) == {}


def test_a_torn_last_line_of_a_journal_counts_as_not_written(begin: Begin, output: Path) -> None:
    run = begin()
    run.record(0, {0: fields(1.0), 1: fields(0.0)})
    journal = next(run.directory.glob("*.journal"))
    whole = journal.read_bytes()
    for cut in range(1, len(whole)):
        journal.write_bytes(whole[:-cut])
        again = begin(resume=True)
        kept = again.recorded(0)
        assert kept == {row: outcome for row, outcome in {0: fields(1.0), 1: fields(0.0)}.items() if row in kept}
        assert len(kept) == whole[:-cut].count(b"\n")
        again.record(0, {9: fields(9.0)})  # what is written next starts on a line of its own
        assert again.recorded(0) == {**kept, 9: fields(9.0)}


def test_a_torn_line_of_finished_chunks_counts_as_not_written(begin: Begin) -> None:
    run = begin()
    run.finish(0, tallies(2))
    run.finish(1, tallies(2))
    listed = run.directory / "finished.jsonl"
    listed.write_bytes(listed.read_bytes()[:-5])
    assert begin(resume=True).finished == {0: tallies(2)}


def test_a_line_torn_by_a_signal_costs_itself_only(begin: Begin) -> None:
    run = begin()
    run.record(0, {0: fields(1.0)})
    journal = next(run.directory.glob("*.journal"))
    journal.write_bytes(b'{"row": 7, "rew' + journal.read_bytes() + b'{"row": 1, "reward": 0.0}\n')
    assert run.recorded(0) == {1: fields(0.0)}


def test_an_outcome_that_was_recorded_twice_counts_once(begin: Begin) -> None:
    run = begin()
    run.record(0, {0: fields(1.0)})
    run.record(0, {0: fields(1.0)})
    assert begin(resume=True).recorded(0) == {0: fields(1.0)}


def test_a_run_that_ended_before_it_had_written_anything_can_be_continued(begin: Begin, output: Path) -> None:
    output.with_name("out.jsonl.partial").mkdir(parents=True)
    assert begin(resume=True).finished == {}


# -- what is refused -------------------------------------------------------------------------------------------------


def refusal(begin: Begin, run: dict[str, Any] = RUN, **how: bool) -> str:
    with pytest.raises(DataError) as refused:
        begin(run, **how)
    return str(refused.value)


def test_an_unfinished_run_is_neither_dropped_nor_continued_unasked(begin: Begin) -> None:
    begin()
    message = refusal(begin)
    assert "out.jsonl.partial holds an unfinished run" in message
    assert "--resume" in message
    assert "--overwrite" in message


def test_another_run_is_not_continued_and_what_changed_is_named(begin: Begin) -> None:
    begin().finish(0, tallies(2))
    message = refusal(begin, {**RUN, "reward_model.on_error": "mask"}, resume=True)
    assert "reward_model.on_error was 'raise' and is 'mask'" in message
    assert "--overwrite" in message
    assert begin(resume=True).finished == {0: tallies(2)}, "a refusal must leave the run as it is"


def test_an_output_that_is_there_is_not_replaced_unasked(begin: Begin, output: Path) -> None:
    output.parent.mkdir()
    output.write_text("precious")
    assert "is there already" in refusal(begin)
    assert "is complete, there is nothing to resume" in refusal(begin, resume=True)
    assert not output.with_name("out.jsonl.partial").exists()


def test_an_output_that_is_a_directory_is_refused(begin: Begin, output: Path) -> None:
    output.mkdir(parents=True)
    assert "is a directory" in refusal(begin, overwrite=True)


def test_resume_and_overwrite_contradict(begin: Begin) -> None:
    begin().finish(0, tallies(2))
    assert "give one of the two" in refusal(begin, resume=True, overwrite=True)
    assert begin(resume=True).finished


def test_a_run_that_another_process_is_writing_is_left_alone(begin: Begin, output: Path) -> None:
    running = begin()
    for how in ({"resume": True}, {"overwrite": True}):
        other = PartialRun(output)
        with pytest.raises(DataError, match="is being written by another process"):
            other.begin(RUN, **{"resume": False, "overwrite": False, **how})
    running.finish(0, tallies(2))
    running.close()
    running.close()
    assert begin(resume=True).finished


# -- overwriting and the end -----------------------------------------------------------------------------------------


def test_overwriting_drops_an_unfinished_run(begin: Begin) -> None:
    run = begin()
    run.record(1, {0: fields(1.0)})
    run.finish(0, tallies(2))
    again = begin({"another": "run"}, overwrite=True)
    assert again.finished == again.recorded(1) == {}
    assert begin({"another": "run"}, resume=True).finished == {}


def test_the_old_output_stays_until_the_new_one_is_complete_also_over_a_resume(begin: Begin, output: Path) -> None:
    output.parent.mkdir()
    output.write_text("old")
    begin(overwrite=True).finish(0, tallies(2))
    again = begin(resume=True)
    assert output.read_text() == "old"
    assert again.finished == {0: tallies(2)}


def test_a_complete_run_leaves_nothing_behind(begin: Begin, output: Path) -> None:
    run = begin()
    run.finish(0, tallies(2))
    run.remove()
    assert list(output.parent.iterdir()) == []
