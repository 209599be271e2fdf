"""Targets of the command line: what they name is loaded, and what is wrong with them said in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from convwright.cli.targets import called, load
from convwright.errors import BadInput

SOURCE = """
import neighbour_of_targets
class Net:
    @staticmethod
    def forward(): return neighbour_of_targets.ANSWER
def forward(): return 1
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module, its neighbour, and modules that cannot be imported; the search path stays as it was."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "module_of_targets.py").write_text(SOURCE)
    (tmp_path / "neighbour_of_targets.py").write_text("ANSWER = 42")
    (tmp_path / "broken_of_targets.py").write_text("raise RuntimeError('first line\\nsecond line')")
    (tmp_path / "unwritten_of_targets.py").write_text("def f(:\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_of_targets")]:
        del sys.modules[name]


def test_a_function_of_a_file_that_imports_its_neighbour(folder: Path) -> None:
    assert load(f"{folder / 'module_of_targets.py'}:forward")() == 1
    assert load(f"{folder / 'module_of_targets.py'}:Net.forward")() == 42


def test_a_function_of_a_module_in_the_present_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load("module_of_targets:forward")() == 1
    assert load("module_of_targets.py:forward")() == 1


MISTAKES = [
    ("hello", "module:function or path/to/file.py:function, got 'hello'"),
    (":f", "got ':f'"),
    ("math:", "got 'math:'"),
    ("there.is.none:f", "module 'there.is.none' cannot be imported: ModuleNotFoundError: No module named 'there'"),
    ("math:sqroot", "'math' has no attribute 'sqroot'"),
    ("math:pi", "'math:pi' must name something callable, got float"),
    ("nowhere/file.py:f", "there is no file 'nowhere/file.py'"),
    ("broken_of_targets:f", "module 'broken_of_targets' cannot be imported: RuntimeError: first line"),
    ("broken_of_targets.py:f", "file 'broken_of_targets.py' cannot be imported: RuntimeError: first line"),
    ("unwritten_of_targets:f", "cannot be imported: SyntaxError"),
]


@pytest.mark.parametrize(("target", "sentence"), MISTAKES, ids=[target for target, _ in MISTAKES])
def test_mistakes(target: str, sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(BadInput) as raised:
        load(target)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_a_function_raises_is_said_in_words() -> None:
    def fails() -> None:
        raise ValueError("no luck\nand a traceback")

    with pytest.raises(BadInput, match=r"'a:fails' is called without arguments and raised ValueError: no luck$"):
        called("a:fails", fails)
    with pytest.raises(BadInput, match="raised TypeError"):
        called("a:needs", lambda needed: needed)
    assert called("a:fine", lambda: 3) == 3
