"""What a user sees of the package, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import convwright

MOST_IMPORT_S = 0.15
HEAVY = {"torch", "numpy", "cudnn", "triton", "nvidia", "rich", "typer", "sqlite3"}

SCRIPT = """
import time, sys
begun = time.perf_counter()
import convwright
took = time.perf_counter() - begun
print(took, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("name", convwright.__all__)
def test_every_name_is_there(name: str) -> None:
    value = getattr(convwright, name)
    assert value is not None
    assert getattr(convwright, name) is value
    assert name in dir(convwright)
    assert name == "__version__" or value.__doc__, f"{name} has no docstring"


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'convwright' has no attribute 'conv9d'"):
        _ = convwright.conv9d  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(convwright.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (alias.asname, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    modules = {(name, "convwright") for name in convwright._MODULES}
    assert seen == {*convwright._HOMES.items(), *modules}


def test_the_version_is_that_of_the_package() -> None:
    assert convwright.__version__ == metadata.version("convwright")


def test_every_error_is_one_kind() -> None:
    for error in (convwright.BadInput, convwright.Refused, convwright.BackendError, convwright.StoreError):
        assert issubclass(error, convwright.ConvwrightError)


def test_importing_is_quick_and_imports_nothing_heavy() -> None:
    said = [
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert HEAVY.isdisjoint(said[0][1:])
    assert min(float(took) for took, *_ in said) < MOST_IMPORT_S


def test_describing_a_problem_needs_no_torch() -> None:
    script = """
import sys
import convwright as cw
problem = cw.ConvProblem.parse("mb32ic256ih14oc256kh3ph1")
cw.Policy(max_error=1.0), problem.flops, problem.bytes, problem.key
from convwright.core.profiles import profile
profile("h200")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
