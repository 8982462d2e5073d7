"""Updates of a running pipeline: what they may say, when they hold, and that they hold whole or not at all."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import SchemaVersionError
from reward_loop.rubrics.live_config import Change, LiveConfig, Versioned
from reward_loop.rubrics.refusal import ConfigRefused
from reward_loop.rubrics.reward_config import RewardConfig
from reward_loop.rubrics.update import Changes
from tests.rubrics.live import entry, live_config, reward_config, weights_of


def propose(live: LiveConfig, patch: Any, **options: Any) -> int:
    return live.propose(patch, now=100.0, **options).version


def code_of(patch: Any, **options: Any) -> str:
    """The code with which an update is refused, after making sure that nothing has changed."""
    live = live_config()
    before = live.state
    with pytest.raises(ConfigRefused) as error:
        propose(live, patch, **options)
    assert live.state is before
    assert live.audit == ()
    return error.value.code


def test_an_update_holds_from_the_next_reset_on() -> None:
    live = live_config()
    assert propose(live, {"per_turn": [{"name": "style", "weight": 0.5}]}) == 2
    assert (live.version, weights_of(live.active)["style"]) == (1, 1.0)
    assert (live.latest_version, weights_of(live.pending)["style"]) == (2, 0.5)
    assert live.begin_episode() == Versioned(live.pending, 2)
    assert (live.version, weights_of(live.active)["style"]) == (2, 0.5)


def test_an_immediate_update_holds_at_once_with_all_that_was_pending() -> None:
    live = live_config()
    propose(live, {"weights": {"task": 2.0}})
    accepted = live.propose({"weights": {"style": 0.5}, "apply": "immediate"}, now=1.0)
    assert accepted.applies == "immediate"
    assert weights_of(live.active) == {"task": 2.0, "style": 0.5, "outcome": 1.0}
    assert live.state.immediate == live.state.active == live.state.latest


def test_of_updates_before_a_reset_the_last_one_wins_field_by_field() -> None:
    live = live_config()
    propose(live, {"weights": {"task": 2.0, "style": 0.5}})
    propose(live, {"per_turn": [{"name": "style", "weight": 0.1, "enabled": False}]})
    propose(live, {"weights": {"outcome": 3.0}})
    assert weights_of(live.pending) == {"task": 2.0, "style": 0.1, "outcome": 3.0}
    assert entry(live.pending, "style")["enabled"] is False
    assert live.begin_episode().version == 4


def test_entries_that_are_not_listed_stay_as_they_are() -> None:
    live = live_config(task=7.0)
    propose(live, {"episode_end": [{"name": "outcome", "weight": 0.0}]})
    assert weights_of(live.pending) == {"task": 7.0, "style": 1.0, "outcome": 0.0}
    assert [phase for phase, _ in live.pending.entries()] == ["per_turn", "per_turn", "episode_end"]


@pytest.mark.parametrize(
    "patch", [{}, {"per_turn": []}, {"schema_version": "1.0"}, {"weights": {"task": 1.0}}, {"per_turn": None}]
)
def test_an_update_that_changes_nothing_is_taken_and_is_no_change(patch: dict[str, Any]) -> None:
    live = live_config()
    assert propose(live, patch) == 1
    assert live.audit == ()


def test_what_get_shows_can_be_sent_back_with_a_change() -> None:
    live = live_config()
    shown = {**live.active.as_dict(), "config_version": 1}
    entry(shown, "style")["weight"] = 0.25
    propose(live, shown)
    assert weights_of(live.pending)["style"] == 0.25
    with pytest.raises(ConfigRefused, match="version 1"):
        propose(live, shown)


def test_settings_that_a_rubric_lists_may_change_and_new_ones_be_added() -> None:
    live = live_config()
    propose(live, {"per_turn": [{"name": "style", "config": {"threshold": 0.9, "model": "small"}}]})
    propose(live, {"config": {"style": {"words": ["a"]}}})
    assert entry(live.pending, "style")["config"] == {"threshold": 0.9, "model": "small", "words": ["a"]}
    assert [change.new.config for change in live.audit] == [{"style": {"threshold": 0.9}}, {"style": {"words": ["a"]}}]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"weights": {"styel": 1.0}}, "unknown_rubric"),
        ({"per_turn": [{"name": "nobody", "weight": 1.0}]}, "unknown_rubric"),
        ({"episode_end": [{"name": "style", "weight": 1.0}]}, "unknown_rubric"),
        ({"per_turn": [{"name": ["style"], "weight": 1.0}]}, "unknown_rubric"),
        ({"per_turn": [{"weight": 1.0}]}, "bad_shape"),
        ({"per_turn": {"name": "style"}}, "bad_shape"),
        ({"per_turn": ["style"]}, "bad_shape"),
        ({"weights": [1.0]}, "bad_shape"),
        ({"weights": None}, "bad_shape"),
        ([], "bad_shape"),
        (None, "bad_shape"),
        ("weights", "bad_shape"),
        ({"weigths": {"style": 1.0}}, "unknown_key"),
        ({"per_turn": [{"name": "style", "wieght": 1.0}]}, "unknown_key"),
        ({"per_turn": [{"name": "style", "rubric": "os.system"}]}, "not_updateable"),
        ({"per_turn": [{"name": "style", "on_error": "mask"}]}, "not_updateable"),
        ({"per_turn": [{"name": "style", "timeout_s": 5.0}]}, "not_updateable"),
        ({"config": {"style": {"model": "large"}}}, "not_updateable"),
        ({"config": {"task": {"pattern": "y"}}}, "not_updateable"),
        ({"config": {"style": {"threshold": 0.6}}, "apply": "immediate"}, "not_updateable"),
        ({"config": {"style": {"threshold": "high"}}}, "bad_config"),
        ({"config": {"style": {"threshold": float("nan")}}}, "bad_value"),
        ({"config": {"style": 1}}, "bad_value"),
        ({"enabled": {"style": 1}}, "bad_value"),
        ({"per_turn": [{"name": "style", "enabled": "yes"}]}, "bad_value"),
        ({"apply": "later"}, "bad_value"),
        ({"apply": 1}, "bad_value"),
        ({"config_version": "1"}, "bad_value"),
        ({"config_version": 2}, "conflict"),
        ({"per_turn": [{"name": "style", "weight": 1.0}, {"name": "style", "weight": 2.0}]}, "duplicate"),
        ({"per_turn": [{"name": "style", "weight": 1.0}], "weights": {"style": 1.0}}, "duplicate"),
    ],
)
def test_what_is_wrong_has_a_code_and_changes_nothing(patch: Any, code: str) -> None:
    assert code_of(patch) == code


@pytest.mark.parametrize("weight", [True, "0.5", None, float("nan"), float("inf"), float("-inf"), 10**400, [1], {}])
def test_a_weight_that_is_no_finite_number_is_refused_in_either_form(weight: object) -> None:
    assert code_of({"weights": {"style": weight}}) == "bad_weight"
    assert code_of({"per_turn": [{"name": "style", "weight": weight}]}) == "bad_weight"


def test_one_wrong_part_refuses_the_whole() -> None:
    assert code_of({"weights": {"task": 0.5, "style": 0.5, "outcome": "x"}}) == "bad_weight"
    assert (
        code_of({"per_turn": [{"name": "task", "weight": 0.5}], "episode_end": [{"name": "x", "weight": 1}]}) == "unknown_rubric"
    )


def test_a_version_that_is_stated_must_match_and_may_be_absent(caplog: pytest.LogCaptureFixture) -> None:
    live = live_config()
    propose(live, {"schema_version": "1.0", "weights": {"task": 2.0}})
    propose(live, {"schema_version": None, "weights": {"task": 3.0}})
    with pytest.raises(SchemaVersionError, match=r"2\.0"):
        propose(live, {"schema_version": "2.0", "weights": {"task": 4.0}})
    assert weights_of(live.pending)["task"] == 3.0
    assert caplog.records == []


def test_an_update_for_another_version_is_refused() -> None:
    live = live_config()
    propose(live, {"weights": {"task": 2.0}}, if_match=1)
    with pytest.raises(ConfigRefused) as error:
        propose(live, {"weights": {"task": 3.0}}, if_match=1)
    assert error.value.code == "conflict"
    assert propose(live, {"weights": {"task": 3.0}}, if_match=2) == 3


def test_the_audit_says_who_changed_what_and_when() -> None:
    live = live_config(task=0.5)
    live.propose({"weights": {"task": 0.25}, "enabled": {"style": False}}, now=12.5, who="anna")
    new, old = Changes({"task": 0.25}, {"style": False}), Changes({"task": 0.5}, {"style": True})
    assert live.audit == (Change(2, 12.5, "anna", old, new, "next_reset"),)


def test_a_change_that_can_not_be_recorded_is_not_made() -> None:
    def full(change: Change) -> None:
        del change
        raise OSError("no space left")

    live = live_config(record=full)
    with pytest.raises(OSError, match="no space"):
        propose(live, {"weights": {"task": 2.0}})
    assert (live.pending, live.latest_version, live.audit) == (live.active, 1, ())


def test_a_change_is_recorded_before_it_holds() -> None:
    seen = list[tuple[int, int]]()
    live = live_config(record=lambda change: seen.append((change.version, live.latest_version)))
    propose(live, {"weights": {"task": 2.0}})
    assert seen == [(2, 1)]


def test_who_watches_hears_of_each_change_until_it_stops() -> None:
    live = live_config()
    heard = list[int]()
    stop = live.watch(lambda: heard.append(live.latest_version))
    propose(live, {"weights": {"task": 2.0}})
    propose(live, {})
    stop()
    propose(live, {"weights": {"task": 3.0}})
    assert heard == [2]


def test_recorded_changes_are_taken_over_with_their_versions() -> None:
    first, second = live_config(), live_config()
    propose(first, {"weights": {"task": 2.0}})
    propose(first, {"config": {"style": {"threshold": 0.9}}})
    second.replay(first.audit)
    assert second.pending == first.pending
    assert (second.latest_version, second.audit) == (3, first.audit)


def test_a_process_that_follows_takes_over_what_the_other_has_and_no_updates() -> None:
    live = live_config()
    live.follows = "http://127.0.0.1:1"
    with pytest.raises(ConfigRefused, match=r"follows http://127\.0\.0\.1:1"):
        propose(live, {"weights": {"task": 2.0}})
    served = Versioned(reward_config(task=5.0), 9)
    live.adopt(served, Versioned(reward_config(), 1))
    assert (live.version, live.latest_version, weights_of(live.pending)["task"]) == (1, 9, 5.0)
    live.adopt(Versioned(reward_config(task=6.0), 3), served)
    assert live.state.immediate == live.state.active == served
    assert live.latest_version == 3


@pytest.mark.parametrize(
    "change",
    [
        {"per_turn": []},
        {"per_turn": [{"name": "task", "rubric": "os.system"}, {"name": "style", "rubric": "my.Style"}]},
        {"episode_end": [{"name": "outcome", "rubric": "my.Outcome", "config": {"x": 1}}]},
        {"episode_end": [{"name": "outcome", "rubric": "my.Outcome"}, {"name": "more", "rubric": "my.More"}]},
    ],
)
def test_a_process_that_follows_refuses_what_is_of_another_pipeline(change: dict[str, Any]) -> None:
    live = live_config()
    before = live.state
    with pytest.raises(ConfigRefused, match="another pipeline"):
        live.adopt(Versioned(RewardConfig.load({**reward_config().as_dict(), **change}), 9), before.immediate)
    assert live.state is before


def test_a_refusal_travels_between_processes() -> None:
    with pytest.raises(ConfigRefused) as error:
        propose(live_config(), {"weights": {"nobody": 1.0}})
    received = pickle.loads(pickle.dumps(error.value))
    assert (received.code, str(received)) == ("unknown_rubric", str(error.value))


def test_readers_never_see_parts_of_two_configurations_while_threads_write() -> None:
    live = live_config(task=0.0, style=0.0, outcome=0.0)
    done = threading.Event()
    torn = list[dict[str, float]]()

    def read() -> None:
        while not done.is_set():
            for config in (live.active, live.pending, live.begin_episode().config):
                if len(set((weights := weights_of(config)).values())) > 1:
                    torn.append(weights)

    def write(first: int) -> None:
        for number in range(first, first + 200):
            live.propose({"weights": dict.fromkeys(("task", "style", "outcome"), float(number))}, now=0.0)

    threads = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(1000 * number,)) for number in (1, 2)]
    for thread in (*threads, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in threads:
        thread.join()
    assert torn == []
    assert live.latest_version == 401


updates = st.fixed_dictionaries(
    {},
    optional={
        "weights": st.dictionaries(st.sampled_from(["task", "style", "outcome", "x"]), st.floats(-2, 2) | st.none(), max_size=3),
        "enabled": st.dictionaries(st.sampled_from(["task", "style"]), st.booleans() | st.integers(0, 1)),
        "apply": st.sampled_from(["next_reset", "immediate", "never"]),
        "config_version": st.integers(1, 4),
    },
)


@given(st.lists(updates | st.just("reset"), max_size=12))
def test_versions_count_changes_and_the_audit_leads_from_the_start_to_what_holds(steps: list[Any]) -> None:
    live, again = live_config(), live_config()
    for step in steps:
        version = live.latest_version
        if step == "reset":
            live.begin_episode()
            continue
        try:
            changed = live.propose(step, now=0.0).version
        except ConfigRefused:
            changed = version
        assert changed == live.latest_version == version + (len(live.audit) > version - 1)
    assert live.version <= live.latest_version == 1 + len(live.audit)
    again.replay(live.audit)
    assert again.pending == live.pending
