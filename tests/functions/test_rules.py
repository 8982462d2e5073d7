"""Every data source finds its rule, and no response, however hostile, breaks one."""

import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.rules import default_compute_score, register_rule, rule_for
from reward_loop.sandbox.verdict import Limits, ProgramRun, TestResult

TRUTHS: dict[str, Any] = {
    "openai/gsm8k": "18",
    "lighteval/MATH": r"\frac{x+1}{2}",
    "math_dapo": "34",
    "numina_olympiads": r"\frac{x+1}{2}",
    "hiyouga/geometry3k": r"2\sqrt{3}",
    "searchR1_nq": {"target": ["The Beatles"]},
}
"""One data source of each rule, with a ground truth."""

FRAGMENTS = [
    *(
        "#### ",
        "18",
        "$",
        ",",
        ".",
        "-",
        r"\boxed",
        "{",
        "}",
        r"\fbox{",
        r"\frac",
        r"\sqrt",
        "x",
        "+1",
        "^",
        "(",
        ")",
        "2",
    ),
    *(
        "answer is",
        "Answer:",
        "\n",
        " ",
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        r"\text{ or }",
        r"\left",
        r"\{",
    ),
]


class EchoingSandbox:
    """Says that every program prints what it reads."""

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        return ProgramRun("exited", 0, stdin, b"")

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        raise NotImplementedError("no test here calls functions")

    async def close(self) -> None:
        """Nothing was started."""


@pytest.mark.parametrize(
    ("data_source", "module"),
    [
        ("openai/gsm8k", "gsm8k"),
        ("lighteval/MATH", "math_reward"),
        ("DigitalLearningGmbH/MATH-lighteval", "math_reward"),
        ("HuggingFaceH4/MATH-500", "math_reward"),
        ("math_dapo", "math_dapo"),
        ("math", "math_dapo"),
        ("math_dapo_reasoning", "math_dapo"),
        ("aime", "math_dapo"),
        ("aime_2025", "math_dapo"),
        ("numina_aops_forum", "prime_math"),
        ("numina_cn_k12", "prime_math"),
        ("hiyouga/geometry3k", "geo3k"),
        ("searchR1_bamboogle", "search_r1"),
        ("codecontests", "code"),
        ("openai_humaneval", "code"),
        ("google-research-datasets/mbpp", "code"),
    ],
)
def test_a_data_source_has_its_rule(data_source: str, module: str) -> None:
    assert rule_for(data_source).__module__ == f"reward_loop.functions.{module}"


@pytest.mark.parametrize(
    ("data_source", "text", "truth", "reward"),
    [
        ("openai/gsm8k", "#### 18", "18", 1.0),
        ("lighteval/MATH", r"\boxed{18}", "18", 1.0),
        ("aime24", "Answer: 18", "18", {"score": 1.0, "acc": True, "pred": "18"}),
        ("numina_amc_aime", r"\boxed{18}", "18", 1.0),
        ("hiyouga/geometry3k", r"\boxed{18}", "18", 0.9),
        ("searchR1_popqa", "<answer>18</answer>", {"target": "18"}, 1.0),
    ],
)
def test_a_right_answer_gets_the_reward_of_its_rule(data_source: str, text: str, truth: Any, reward: object) -> None:
    got = default_compute_score(data_source=data_source, solution_str=text, ground_truth=truth, extra_info={"a": 1})
    assert got == reward


def test_options_reach_the_rule() -> None:
    sample: dict[str, Any] = {"data_source": "openai/gsm8k", "solution_str": "18", "ground_truth": "18"}
    assert default_compute_score(**sample, method="flexible", score=2.0) == 2.0


def test_an_unknown_option_is_refused_with_those_that_the_rule_takes() -> None:
    with pytest.raises(ConfigError, match=r"no option metod.*format_score, marker, method, score"):
        default_compute_score(data_source="openai/gsm8k", solution_str="18", ground_truth="18", metod="flexible")


def test_an_unknown_data_source_names_the_nearest_and_the_remedy() -> None:
    with pytest.raises(DataError, match=r"did you mean 'openai/gsm8k'\?.*custom_reward_function.*register_rule"):
        rule_for("openai/gms8k")
    with pytest.raises(DataError, match=r"data_source None is no text"):
        rule_for(None)


@pytest.mark.parametrize(
    "data_source",
    [
        *("codecontests", "apps", "codeforces", "taco", "openai_humaneval", "openai/openai_humaneval", "humaneval"),
        *("mbpp", "google-research-datasets/mbpp"),
    ],
)
async def test_code_is_awaited_and_gets_the_sandbox(data_source: str) -> None:
    sample: dict[str, Any] = {
        "data_source": data_source,
        "solution_str": "```python\nprint(1)\n```",
        "ground_truth": {"inputs": ["1", "1", "1"], "outputs": ["1", "2", "1"]},
    }
    scored = default_compute_score(**sample, sandbox=EchoingSandbox(), continuous=True, max_tests=2)
    assert isinstance(scored, Awaitable)
    result = await scored
    assert isinstance(result, dict)
    assert (result["score"], result["passed"], result["tests"]) == (0.5, 1, 2)


def test_code_without_a_sandbox_is_refused_with_the_way_to_get_one() -> None:
    with pytest.raises(ConfigError, match=r"need a sandbox: the reward loop gives it to them.*take a parameter `sandbox`"):
        default_compute_score(data_source="apps", solution_str="x", ground_truth={"inputs": ["1"], "outputs": ["1"]})


def test_a_rule_that_runs_no_programs_gets_no_sandbox() -> None:
    sample: dict[str, Any] = {"data_source": "openai/gsm8k", "solution_str": "#### 18", "ground_truth": "18"}
    assert default_compute_score(**sample, sandbox=EchoingSandbox()) == 1.0


def test_the_sandbox_is_no_option() -> None:
    with pytest.raises(ConfigError, match=r"no option timeout; .*it takes continuous, max_tests, time_budget_s$"):
        default_compute_score(data_source="taco", solution_str="", ground_truth={}, sandbox=EchoingSandbox(), timeout=1)


def test_a_registered_rule_scores_its_data_sources() -> None:
    @register_rule("test_rules/exact", "test_rules/other")
    def exact(solution_str: str, ground_truth: str) -> float:
        return float(solution_str == ground_truth)

    assert rule_for("test_rules/exact") is rule_for("test_rules/other") is exact
    assert default_compute_score(data_source="test_rules/exact", solution_str="a", ground_truth="a") == 1.0


def test_an_exact_name_wins_over_a_prefix_and_a_longer_prefix_over_a_shorter_one() -> None:
    def rule(solution_str: str, ground_truth: object, **options: object) -> float:
        return float(len(options))

    register_rule("test_prefix", prefix=True)(lambda solution_str, ground_truth: 1.0)
    assert rule_for("test_prefix/long/x") is not rule
    register_rule("test_prefix/long", prefix=True)(rule)
    assert rule_for("test_prefix/long/x") is rule
    register_rule("test_prefix/long/x")(exact := lambda solution_str, ground_truth: 0.0)
    assert rule_for("test_prefix/long/x") is exact
    sample: dict[str, Any] = {"data_source": "test_prefix/long", "solution_str": "", "ground_truth": ""}
    assert default_compute_score(**sample, anything=1) == 1.0


@pytest.mark.parametrize(("names", "prefix"), [(("math",), False), (("aime",), True), ((), False), (("",), True)])
def test_taken_and_empty_names_are_refused(names: tuple[str, ...], prefix: bool) -> None:
    with pytest.raises(ConfigError, match="can't register a rule"):
        register_rule(*names, prefix=prefix)


def test_scoring_gsm8k_imports_no_sympy() -> None:
    program = (
        "import sys; from reward_loop.functions import default_compute_score as score\n"
        "assert score(data_source='openai/gsm8k', solution_str='#### 1', ground_truth='1') == 1.0\n"
        "assert not {'sympy', 'pylatexenc', 'torch', 'numpy'} & sys.modules.keys()"
    )
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_threads_may_meet_at_the_first_use_of_a_rule() -> None:
    program = (
        "from concurrent.futures import ThreadPoolExecutor; from reward_loop.functions import default_compute_score as score\n"
        "def one(i): return score(data_source='numina_cn_k12', solution_str=fr'\\boxed{{x+{i}}}', ground_truth=f'{i}+x')\n"
        "assert list(ThreadPoolExecutor(8).map(one, range(64))) == [1.0] * 64"
    )
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("data_source", TRUTHS)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)))
@settings(deadline=None)
def test_any_text_gets_a_finite_score(data_source: str, text: str) -> None:
    reward = default_compute_score(data_source=data_source, solution_str=text, ground_truth=TRUTHS[data_source])
    assert math.isfinite(reward["score"] if isinstance(reward, dict) else reward)


@pytest.mark.parametrize("data_source", TRUTHS)
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        "\n",
        "9",
        "9,",
        "#### ",
        "{",
        "}",
        r"\boxed{",
        r"\boxed ",
        "<answer>",
        "</think>",
        "Answer: ",
        r"\frac",
    ],
)
def test_a_quarter_of_a_megabyte_of_anything_is_wrong_and_takes_linear_time(data_source: str, piece: str) -> None:
    text = "<think>" + piece * (250_000 // len(piece))
    started = time.perf_counter()
    for solution in (text, rf"\boxed{{{text}}}"):
        reward = default_compute_score(data_source=data_source, solution_str=solution, ground_truth=TRUTHS[data_source])
        assert (reward["score"] if isinstance(reward, dict) else reward) <= 0.1
    assert time.perf_counter() - started < 5.0
