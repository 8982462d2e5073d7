"""math_verify: right, wrong and unparseable are told apart; published labels agree; equality is mathematical."""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import DataError, Unscorable
from reward_loop.functions.custom import load_function
from reward_loop.functions.isolated import isolation_of
from reward_loop.functions.math_verify import compute_score, extract_answer

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / ".." / "shared" / "data" / "math"


def verdict(answer: str, truth: str) -> str:
    return str(compute_score(rf"so \boxed{{{answer}}}.", truth)["verdict"])


@pytest.mark.parametrize(
    ("text", "score", "pred", "said"),
    [
        (r"so \boxed{\frac12}", 1.0, r"\frac12", "correct"),
        (r"so \boxed{5}", 0.0, "5", "wrong"),
        (r"so \boxed{5 + }", 0.0, "5 +", "unparseable"),
        (r"so \boxed{}", 0.0, "", "unparseable"),
        ("no idea", 0.0, "", "unparseable"),
        ("", 0.0, "", "unparseable"),
    ],
)
def test_right_wrong_and_unparseable_are_three_outcomes_with_the_same_keys(text: str, score: float, pred: str, said: str) -> None:
    assert compute_score(text, "1/2") == {"score": score, "acc": score == 1.0, "pred": pred, "verdict": said}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5}, no, \boxed{6}", "6"),
        (r"\boxed{6}, that is 5", "6"),
        (r"5, that is \boxed{6", None),
        ("The answer is $5$ apples.", "5"),
        (r"hence \(x = \frac12\)", r"x = \frac{1}{2}"),
        ("Answer: **5**", "5"),
        ("#### 5", "5"),
        ("5, 6 or 7", "7"),
        ("Answer: 5\nAnswer: 6", "6"),
        ("The final answer is 5. Others say 6", "5"),
        ("Answer: 5" + "." * 300, None),
        ("no idea", None),
    ],
)
def test_the_answer_is_the_last_box_else_the_announced_one_of_the_tail(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("(x+1)^2", "x^2+2x+1"),
        (r"(-\infty, 1) \cup (2, \infty)", r"(-\infty,1)\cup(2,\infty)"),
        (r"\left[1,\infty\right)", r"[1,\infty)"),
        (r"\text{Evelyn}", "evelyn"),
        (r"\text{(C)}", "C"),
        (r"\begin{bmatrix} 0.5 \\ 2 \end{bmatrix}", r"\begin{pmatrix} 1/2 \\ 2 \end{pmatrix}"),
        (r"50\%", "0.5"),
        ("50", r"50\%"),
        (r"30^\circ", "30"),
        (r"5 \text{ cm}^2", "5"),
        ("2516", "2516_8"),
        (r"2516_{8}", "2516_8"),
        ("101_{10}", "101"),
        ("2, 1", "1,2"),
        (r"\pm 5", "5,-5"),
        (r"\{1, 2\}", r"\{2, 1\}"),
        (r"1\,000", "1000"),
        ("1,000.", "1000"),
        ("1 1/2", r"\frac32"),
        (r"3\frac12", "3.5"),
        ("x = 5", "5"),
        ("x > 3", "3 < x"),
        (r"y = x + 1", "x - y + 1 = 0"),
    ],
)
def test_equal_answers_are_right(answer: str, truth: str) -> None:
    assert verdict(answer, truth) == "correct"


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("(x+1)^3", "x^2+2x+1"),
        ("[1,2]", "(1,2)"),
        ("(2,1)", "(1,2)"),
        ("5, 6", "5"),
        (r"5 \text{ or } 6", "5"),
        (r"\pm 5", "5"),
        ("-5", "5"),
        ("10000000000000000000001", "10000000000000000000000"),
        ("101_3", "101_2"),
        ("101_2", "101"),
        ("act", "cat"),
        (r"5\,6", "11"),
        (r"\text{not }5", "5"),
        (r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\frac{5}{0}", "5"),
        (r"\infty - \infty", "0"),
        ("x > 3", r"x \ge 3"),
        ("9^9^9^9", "5"),
    ],
)
def test_different_answers_are_wrong(answer: str, truth: str) -> None:
    assert verdict(answer, truth) == "wrong"


@pytest.mark.parametrize("answer", ["5 6", r"5\quad 6", r"5\ 6", "5~6", "5 = ", r"5 \\ 6", "\u0665", "1+" * 300 + "1"])
def test_what_is_no_mathematics_is_unparseable(answer: str) -> None:
    assert verdict(answer, "11") == "unparseable"


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("0.3333333", r"\frac13"),  # equal to six decimals
        ("1+1", "2"),  # an expression need not be worked out
        ("(1,2)", r"\{1,2\}"),  # an open interval reads like a pair
        ("6 = 5", "5"),  # of a chain of equations the last side counts
        ("30 cm", "30 m"),  # units are dropped
        ("a", "A"),  # single letters are answers of multiple choice
    ],
)
def test_where_the_library_is_lax_by_definition_so_is_the_rule(answer: str, truth: str) -> None:
    assert verdict(answer, truth) == "correct"


def test_decimals_to_compare_are_an_option() -> None:
    assert compute_score(r"\boxed{0.333}", "1/3")["verdict"] == "wrong"
    assert compute_score(r"\boxed{0.333}", "1/3", float_rounding=3)["verdict"] == "correct"


@pytest.mark.parametrize("truth", ["$5$", "$$ 5 $$", r"\boxed{5}", r"so \boxed{5}.", 5, 5.0])
def test_a_truth_may_come_as_a_number_boxed_or_in_dollars(truth: str | float) -> None:
    assert compute_score(r"\boxed{5}", truth)["acc"]


@pytest.mark.parametrize("text", [r"\boxed{5 + }", r"\boxed{7}", ""])
def test_a_truth_that_is_no_mathematics_judges_no_response(text: str) -> None:
    with pytest.raises(Unscorable, match=r"can't parse the ground truth '5 \+'; correct it"):
        compute_score(text, "5 +")


def test_a_missing_truth_is_refused() -> None:
    with pytest.raises(DataError, match="neither a text nor a number"):
        compute_score(r"\boxed{5}", None)  # type: ignore[arg-type]


def test_it_asks_for_a_process_that_can_be_killed_and_loads_as_a_custom_function() -> None:
    assert isolation_of(load_function("pkg://reward_loop.functions.math_verify", "compute_score"), "math_verify") == "process"


@pytest.mark.parametrize(("answer", "truth"), [("9^{9^{9^{9}}}", "5"), ("(x^{3000}-1)/(x-1)", "x^2")])
def test_an_input_that_never_ends_is_left_to_whoever_can_kill_it(answer: str, truth: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=compute_score, args=(rf"\boxed{{{answer}}}", truth))
    process.start()
    process.join(2)
    try:
        assert process.exitcode is None, "it ended by itself: find another such input"
    finally:
        process.kill()
        process.join()


def run(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def test_it_works_in_threads_and_says_nothing_of_its_own() -> None:
    program = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from reward_loop.functions.math_verify import compute_score\n"
        "def right(i): return compute_score(fr'\\boxed{{x+{i}}}', f'{i}+x')['acc']\n"
        "assert all(ThreadPoolExecutor(4).map(right, range(16)))"
    )
    assert run(program) == ""


def test_without_the_library_the_error_names_the_extra() -> None:
    said = run(
        "import sys; sys.modules['math_verify'] = None\n"
        "from reward_loop.errors import ConfigError\n"
        "try: import reward_loop.functions.math_verify\n"
        "except ConfigError as error: print(error)"
    )
    assert "pip install 'reward-loop[math]'" in said


def test_other_rules_do_not_pay_for_the_library() -> None:
    run("import sys, reward_loop.functions.prime_math; assert not {'math_verify', 'antlr4'} & sys.modules.keys()")


def labelled() -> list[tuple[str, str, bool]]:
    """(response, truth, label) of all published labels, and of MATH-500's own solutions."""
    rows: list[tuple[str, str, bool]] = []
    for line in (DATA / "math_cot_50.jsonl").read_text("utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        rows += [(text, entry["gt"], label) for text, label in zip(entry["code"], entry["score"], strict=True)]
    for line in (DATA / "math500.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        rows.append((entry["solution"], entry["answer"], True))
    return rows


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/math beside the checkout")
def test_it_agrees_with_every_label_and_with_every_solution_of_math_500() -> None:
    rows = labelled()
    assert len(rows) == 900
    assert [row for row in rows if compute_score(row[0], row[1])["acc"] != row[2]] == []
