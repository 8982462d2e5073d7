from __future__ import annotations

import logging

import pytest

from reward_loop.errors import ConfigError, WeightSyncError
from reward_loop.sync.staleness import Staleness


def test_a_sample_may_be_scored_by_weights_within_the_limit() -> None:
    staleness = Staleness(2, "raise")
    for version in (0, 5, 3, 4, 6, 4):
        staleness.check(version)
    assert staleness.newest == 6


@pytest.mark.parametrize(("limit", "newest", "version"), [(0, 1, 0), (2, 5, 2), (1, 9, 0)])
def test_weights_beyond_the_limit_are_an_error_that_says_how_far(limit: int, newest: int, version: int) -> None:
    staleness = Staleness(limit, "raise")
    staleness.told(newest)
    behind = newest - version
    with pytest.raises(
        WeightSyncError, match=rf"version {version} scored, {behind} versions behind {newest}.*max_staleness={limit}"
    ):
        staleness.check(version)
    staleness.check(newest)


def test_a_warning_comes_once_for_each_version(caplog: pytest.LogCaptureFixture) -> None:
    staleness = Staleness(1)
    staleness.told(5)
    with caplog.at_level(logging.WARNING):
        for version in (3, 3, 2, 3, 5, 4):
            staleness.check(version)
    assert [record.getMessage()[:18] for record in caplog.records] == ["weights of version"] * 2


def test_versions_that_are_seen_count_as_known() -> None:
    staleness = Staleness(0, "raise")
    staleness.check(3)
    staleness.check(4)
    with pytest.raises(WeightSyncError):
        staleness.check(3)


def test_without_a_limit_or_a_version_there_is_nothing_to_complain_of() -> None:
    anything = Staleness(None, "raise")
    anything.told(100)
    anything.check(0)
    strict = Staleness(0, "raise")
    strict.told(100)
    strict.check(None)


def test_an_older_version_that_is_told_changes_nothing() -> None:
    staleness = Staleness(0)
    staleness.told(4)
    staleness.told(0)
    assert staleness.newest == 4


@pytest.mark.parametrize(("limit", "on_stale"), [(-1, "warn"), (0, "ignore")])
def test_settings_that_mean_nothing_are_refused(limit: int, on_stale: str) -> None:
    with pytest.raises(ConfigError):
        Staleness(limit, on_stale)  # type: ignore[arg-type]
