"""``module:function`` and ``path/to/file.py:function`` → what they name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from convwright.errors import BadInput, in_words


def load(target: str) -> Callable[..., Any]:
    """The callable that ``target`` names. Modules are looked for in the present directory as well.

    >>> load("math:sqrt")(9.0)
    3.0
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise BadInput(f"a target is module:function or path/to/file.py:function, got {target!r}")
    module = _from_file(place) if place.endswith(".py") else _by_name(place)
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise BadInput(f"{place!r} has no attribute {name!r}") from None
    if not callable(found):
        raise BadInput(f"{target!r} must name something callable, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def called(target: str, function: Callable[..., Any]) -> Any:
    """What the function behind ``target`` returns for no arguments."""
    try:
        return function()
    except Exception as error:
        raise BadInput(f"{target!r} is called without arguments and raised {in_words(error)}") from error


def stdout_kept(as_json: bool) -> AbstractContextManager[object]:
    """While users' code runs: what it prints goes to stderr where stdout is to hold JSON and nothing else."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def _by_name(name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return import_module(name)
    except Exception as error:
        raise BadInput(f"module {name!r} cannot be imported: {in_words(error)}") from error


def _from_file(path: str) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise BadInput(f"there is no file {path!r}")
    _search(file.parent)  # As `python file.py` does, so that the file finds its neighbours.
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"file {path!r} cannot be imported: {in_words(error)}") from error
    return module


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
