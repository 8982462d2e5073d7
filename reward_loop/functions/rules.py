r"""The registry data_source -> rule function, and the dispatch to it that scores where no custom function does.

    data_source                                                    rule         value
    openai/gsm8k                                                   gsm8k        1 | 0
    lighteval/MATH, DigitalLearningGmbH/MATH-lighteval,            math_reward  1 | 0
      HuggingFaceH4/MATH-500
    math_dapo, math, math_dapo_reasoning, aime*                    math_dapo    {score: +1 | -1, acc, pred}
    numina_{aops_forum, synthetic_math, amc_aime, synthetic_amc,   prime_math   1 | 0
      cn_k12, olympiads}
    hiyouga/geometry3k                                             geo3k        0.9 accuracy + 0.1 form: 0..1
    searchR1_{nq, triviaqa, popqa, hotpotqa, 2wikimultihopqa,      search_r1    1 | 0, 1/4 for tag spam
      musique, bamboogle}
    math_verify                                                    math_verify  {score, acc, pred, verdict}
    codecontests, apps, codeforces, taco,                          code         {score, acc, verdict, passed, tests, message}
      openai_humaneval, openai/openai_humaneval, humaneval,
      mbpp, google-research-datasets/mbpp

A rule is `compute_score(solution_str, ground_truth, **options) -> float | dict`: for one sample, safe in threads; one that runs
programs takes `sandbox` as well and returns an awaitable.
Invariants: a name has one rule, for good; an exact name wins over a prefix, a longer prefix over a shorter one; the
module of a built-in rule is imported when its first sample comes (sympy is not paid for by those who grade GSM8K).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar, overload

import cloudpickle

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.isolated import Isolation, isolated, isolation_of
from reward_loop.sandbox.verdict import Sandbox

logger = logging.getLogger(__name__)

Score = float | dict[str, Any]
Rule = Callable[..., Score | Awaitable[Score]]
RuleT = TypeVar("RuleT", bound=Rule)

_BUILT_IN = {
    "openai/gsm8k": "gsm8k",
    "lighteval/MATH": "math_reward",
    "DigitalLearningGmbH/MATH-lighteval": "math_reward",
    "HuggingFaceH4/MATH-500": "math_reward",
    "math_dapo": "math_dapo",
    "math": "math_dapo",
    "math_dapo_reasoning": "math_dapo",
    **dict.fromkeys(
        [
            *("numina_aops_forum", "numina_synthetic_math", "numina_amc_aime"),
            *("numina_synthetic_amc", "numina_cn_k12", "numina_olympiads"),
        ],
        "prime_math",
    ),
    "hiyouga/geometry3k": "geo3k",
    **dict.fromkeys(
        [
            *("searchR1_nq", "searchR1_triviaqa", "searchR1_popqa", "searchR1_hotpotqa"),
            *("searchR1_2wikimultihopqa", "searchR1_musique", "searchR1_bamboogle"),
        ],
        "search_r1",
    ),
    "math_verify": "math_verify",
    **dict.fromkeys(
        [
            *("codecontests", "apps", "codeforces", "taco", "openai_humaneval", "openai/openai_humaneval", "humaneval"),
            *("mbpp", "google-research-datasets/mbpp"),
        ],
        "code",
    ),
}

NO_SANDBOX = (
    "code rewards need a sandbox: the reward loop gives it to them, and a custom function that calls default_compute_score "
    "has to take a parameter `sandbox` and pass it on"
)

# A text names the module of this package that holds the rule; bytes are a rule that another process has registered, pickled.
_exact: dict[str, Rule | str | bytes] = dict(_BUILT_IN)
_prefixes: dict[str, Rule | str | bytes] = {"aime": "math_dapo"}


def register_rule(*data_sources: str, prefix: bool = False) -> Callable[[RuleT], RuleT]:
    """Decorator: the function scores these data sources (with `prefix`, all that begin so); ConfigError if taken."""
    table = _prefixes if prefix else _exact
    taken = [name for name in data_sources if not isinstance(table.get(name, b""), bytes)]
    if taken or not data_sources or "" in data_sources:
        reason = f"{taken} have a rule" if taken else "a rule needs one or more names, none of them empty"
        raise ConfigError(f"can't register a rule for {data_sources}: {reason}; take other names or a custom function")

    def register(rule: RuleT) -> RuleT:
        table.update(dict.fromkeys(data_sources, rule))
        _resolve.cache_clear()
        return rule

    return register


def registered_rules() -> Iterator[tuple[str, bool, bytes]]:
    """Yield the rules that users have registered, as (data source, whether it is a prefix, pickled), for `adopt_rules`."""
    for table in (_exact, _prefixes):
        for name, rule in table.items():
            if isinstance(rule, bytes):
                yield name, table is _prefixes, rule
            elif not isinstance(rule, str):
                try:
                    yield name, table is _prefixes, cloudpickle.dumps(rule)
                except Exception:  # noqa: BLE001 - any object's pickling may raise anything; the rule stays this process's own
                    logger.warning("the rule of %r can't be sent to other processes, which don't know this data source", name)


def adopt_rules(rules: Iterable[tuple[str, bool, bytes]]) -> None:
    """Take over rules of another process, each unpickled when its first sample comes, under names that have no rule here."""
    for name, prefix, rule in rules:
        (_prefixes if prefix else _exact).setdefault(name, rule)
    _resolve.cache_clear()


def rule_for(data_source: str | None) -> Rule:
    """The rule of this data source; DataError, naming the nearest known one, if it has none."""
    if not isinstance(data_source, str):
        raise DataError(f"data_source {data_source!r} is no text; set the column data_source of the data set")
    return _resolve(data_source)


def _isolation(data_source: str | None) -> Isolation | None:
    return isolation_of(rule_for(data_source), data_source)


@overload
def default_compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    sandbox: None = None,
    **kwargs: Any,
) -> Score: ...


@overload
def default_compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    sandbox: Sandbox | None,
    **kwargs: Any,
) -> Score | Awaitable[Score]: ...


@isolated(_isolation)
def default_compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    sandbox: Sandbox | None = None,
    **kwargs: Any,
) -> Score | Awaitable[Score]:
    """The reward of one sample by the rule of its data source, to be awaited where that runs programs.

    These need `sandbox`. `kwargs` are the rule's options; no rule reads extra_info.
    """
    rule = rule_for(data_source)
    if kwargs:
        _refuse_unknown_options(rule, data_source, kwargs)
    if _runs_programs(rule):
        if sandbox is None:
            raise ConfigError(NO_SANDBOX)
        return rule(solution_str, ground_truth, sandbox=sandbox, **kwargs)
    return rule(solution_str, ground_truth, **kwargs)


@lru_cache(maxsize=4096)
def _resolve(data_source: str) -> Rule:
    found = _exact.get(data_source)
    if found is None:
        longest = max((prefix for prefix in _prefixes if data_source.startswith(prefix)), key=len, default=None)
        if longest is None:
            raise _no_rule(data_source)
        found = _prefixes[longest]
    if isinstance(found, bytes):
        found = _unpickled(data_source, found)
    if not isinstance(found, str):
        return found
    # import_module holds the import lock: threads that come meanwhile wait for the whole module.
    rule: Rule = import_module(f"reward_loop.functions.{found}").compute_score
    return rule


def _unpickled(data_source: str, pickled: bytes) -> Rule:
    try:
        rule: Rule = cloudpickle.loads(pickled)
    except Exception as error:  # unpickling imports the user's modules, which may raise anything
        raise ConfigError(f"the rule of {data_source!r} can't be loaded in another process: {error!r}") from error
    return rule


def _no_rule(data_source: str) -> DataError:
    remedy = "set custom_reward_function.path or register one with reward_loop.functions.register_rule"
    known = sorted([*_exact, *(f"{prefix}*" for prefix in _prefixes)])
    near = get_close_matches(data_source, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return DataError(f"no rule for data_source {data_source!r}{hint} Known: {', '.join(known)}. Or {remedy}")


def _refuse_unknown_options(rule: Rule, data_source: str, options: dict[str, Any]) -> None:
    known = _options(rule)
    unknown = sorted(options.keys() - known) if known is not None else []
    if unknown:
        raise ConfigError(
            f"the rule of {data_source!r} has no option {', '.join(unknown)}; correct reward_kwargs: "
            f"it takes {', '.join(sorted(known or ())) or 'none'}"
        )


@lru_cache(maxsize=256)
def _runs_programs(rule: Rule) -> bool:
    return "sandbox" in inspect.signature(rule).parameters


@lru_cache(maxsize=256)
def _options(rule: Rule) -> frozenset[str] | None:
    """Names of the options that the rule takes; None if it takes any."""
    parameters = list(inspect.signature(rule).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters[2:]) - {"sandbox"}
