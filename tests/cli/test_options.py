"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_loop.cli.options import config_of, refuse_paths
from reward_loop.errors import ConfigError


def test_settings_come_on_top_of_files_and_files_on_top_of_a_base(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("reward_model: {num_workers: 2, max_threads: 2, timeout_s: 2}\n")
    (tmp_path / "two.yaml").write_text("reward_model: {max_threads: 3, timeout_s: 3}\n")
    base = {"reward_model": {"num_workers": 1, "max_threads": 1, "timeout_s": 1, "max_concurrency": 1}}
    config = config_of([tmp_path / "one.yaml", tmp_path / "two.yaml"], ["reward_model.timeout_s=4"], base).reward_model
    assert (config.max_concurrency, config.num_workers, config.max_threads, config.timeout_s) == (1, 2, 3, 4)


def test_without_any_there_are_the_defaults() -> None:
    assert config_of(None, None) == config_of([], [])


def test_a_word_without_an_equals_sign_is_no_setting() -> None:
    refuse_paths(None, "")
    refuse_paths(["a=b", "+c.d="], "")
    with pytest.raises(ConfigError, match=r"'out\.parquet' is no KEY=VALUE; use -o"):
        refuse_paths(["a=b", "out.parquet"], "use -o")
