"""The shape of the package: which way imports point, what importing it costs, and the links at the root."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import reward_loop

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "reward_loop"

# From left to right; a layer imports itself and layers before its own, never its neighbours or those after it.
LAYERS = [
    {"errors"},
    {"config"},
    {"data", "outcome", "deadline", "machine", "loop_thread"},
    {"limits", "sync"},
    {"training"},
    {"sandbox", "scoring"},
    {"functions"},
    {"isolation", "router"},
    {"serving"},
    {"managers"},
    {"rubrics"},
    {"loop"},
    {"credit"},
    {"runs"},
    {"rinker"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def layer_of(dotted: str) -> str:
    """`reward_loop.config_loading` belongs to the layer "config", `reward_loop.data.proto` to "data"."""
    part = dotted.split(".")[1]
    return next((layer for layer in ("config", "outcome") if part.startswith(layer)), part)


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports anywhere: at the top, inside functions, for type checking."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write reward_loop.…"
            module = str(node.module)
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "reward_loop" else [module]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    imported = {layer_of(name) for name in imports_of(path) if name.startswith("reward_loop.")}
    assert {layer for layer in imported - {here} if RANK[layer] >= RANK[here]} == set()


def test_the_managers_and_the_router_at_the_root_are_links_into_the_package() -> None:
    for name in ("managers", "router"):
        link = ROOT / name
        assert link.is_symlink()
        assert link.resolve() == PACKAGE / name


def test_nobody_imports_the_links() -> None:
    folders = [PACKAGE, *(ROOT / name for name in ("tests", "recipes", "benchmarks"))]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert Path(__file__).resolve() in files
    assert [path for path in files for name in imports_of(path) if name.split(".")[0] in {"managers", "router"}] == []


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `statement`."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


HEAVY = {"torch", "ray", "vllm", "transformers", "tensordict", "pyarrow", "numpy", "sympy", "pydantic", "omegaconf"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import reward_loop")
    assert "reward_loop" in loaded
    assert loaded & HEAVY == set()


def test_loading_a_config_needs_neither_torch_nor_ray() -> None:
    loaded = loaded_by("from reward_loop import load_config; load_config({})")
    assert loaded & {"torch", "ray", "vllm", "transformers", "tensordict", "pyarrow", "sympy"} == set()


def test_scoring_locally_never_loads_ray() -> None:
    score = "from reward_loop import RewardLoopManager; RewardLoopManager({}).close()"
    loaded = loaded_by(score)
    assert "uvloop" in loaded
    assert loaded & {"ray", "vllm"} == set()


def test_every_public_name_resolves_and_is_declared_for_type_checkers() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert "RewardLoopManager" in declared
    assert declared <= set(dir(reward_loop))
    for name in declared:
        assert name is not None
        assert getattr(reward_loop, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RewardLoop'"):
        _ = reward_loop.RewardLoop
