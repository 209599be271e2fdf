"""``module:function`` and ``path/to/file.py:function`` → what they name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from convwright.cli.neighbours import Neighbours
from convwright.errors import BadInput, in_words


def load(target: str) -> Callable[..., Any]:
    """The callable that ``target`` names. Modules are looked for in the present directory as well.

    >>> load("math:sqrt")(9.0)
    3.0
    """
    return load_all([target])[target]


def load_all(targets: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The callables that ``targets`` name. A file that several name is executed once, and what a file imports while it
    is executed comes from its own folder, whatever the others import."""
    with Neighbours() as neighbours:
        return {target: _loaded(target, neighbours) for target in targets}


def _loaded(target: str, neighbours: Neighbours) -> Callable[..., Any]:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise BadInput(f"a target is module:function or path/to/file.py:function, got {target!r}")
    module = _from_file(place, neighbours) if place.endswith(".py") else _by_name(place, neighbours)
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
    except SystemExit as end:
        raise BadInput(f"{target!r} is called without arguments and ended the program by {_words(end)}") from end
    except Exception as error:
        raise BadInput(f"{target!r} is called without arguments and raised {in_words(error)}") from error


@contextmanager
def running(*targets: str, as_json: bool) -> Iterator[None]:
    """While users' code runs: that it ended the program is said, and what it prints goes to stderr where stdout is to
    hold JSON and nothing else."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        try:
            yield
        except SystemExit as end:
            names = " or ".join(map(repr, targets))
            raise BadInput(f"{names} ended the program by {_words(end)}") from end


def _words(end: SystemExit) -> str:
    """The call that ends a program so."""
    return f"sys.exit({'' if end.code is None else repr(end.code)})"


def _by_name(name: str, neighbours: Neighbours) -> ModuleType:
    with neighbours.of(Path.cwd()), _importing(f"module {name!r}"):
        return import_module(name)


def _from_file(path: str, neighbours: Neighbours) -> ModuleType:
    file = Path(path).resolve()
    if not file.is_file():
        raise BadInput(f"there is no file {path!r}")
    # As `python file.py` does, so that the file finds its neighbours.
    with neighbours.of(file.parent), _importing(f"file {path!r}"):
        return neighbours.loaded_from(file) or _executed(file)


def _executed(file: Path) -> ModuleType:
    """The module of a file. It is found by its name from the first, as dataclasses and pickle want it."""
    name = file.stem.replace(".", "_")
    while name in sys.modules:
        name += "_"
    spec = spec_from_file_location(name, file)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


@contextmanager
def _importing(what: str) -> Iterator[None]:
    try:
        yield
    except SystemExit as end:
        raise BadInput(f"{what} cannot be imported: it ends the program by {_words(end)}") from end
    except Exception as error:
        raise BadInput(f"{what} cannot be imported: {in_words(error)}") from error
