"""``module:function`` and ``path/to/file.py:function`` → what they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import unwrap
from operator import attrgetter
from pathlib import Path
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from convwright.cli.neighbours import Neighbours
from convwright.errors import BadInput, ConvwrightError, in_words, is_the_callers

_MOST_NAMED = 5
_BUILT_IN = (BuiltinFunctionType, MethodWrapperType, WrapperDescriptorType, MethodDescriptorType)
_LIBRARY, _PACKAGES = Path(os.__file__).parent, {"site-packages", "dist-packages"}


def load(target: str) -> Callable[..., Any]:
    """The callable that ``target`` names. Modules are looked for in the present directory as well.

    >>> load("math:sqrt")(9.0)
    3.0
    """
    return Targets([target]).functions[target]


class Targets:
    """The ``functions`` that targets name, by these. A file that several name is executed once. What a file imports
    while it is executed comes from its own folder, whatever the others import, and so it does in ``call``."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._neighbours = Neighbours()
        self.functions = {target: self._loaded(target) for target in targets}

    def call(self, target: str) -> Any:
        """What the function that ``target`` names returns for no arguments."""
        with self._neighbours.of(_folder(target.rpartition(":")[0])):
            return called(target, self.functions[target])

    def _loaded(self, target: str) -> Callable[..., Any]:
        place, _, name = target.rpartition(":")
        _refuse_folder(target)
        if not place or not name:
            raise BadInput(f"a target is module:function or path/to/file.py:function, got {target!r}")
        with self._neighbours.of(_folder(place)):
            module = self._from_file(place) if _is_file(place) else _by_name(place)
        try:
            found = attrgetter(name)(module)
        except AttributeError:
            raise BadInput(f"{place!r} has no attribute {name!r}{_nearest(name, module)}") from None
        if not callable(found):
            raise BadInput(f"{target!r} must name something callable, got {type(found).__name__}")
        return found  # type: ignore[no-any-return]

    def _from_file(self, path: str) -> ModuleType:
        file = Path(path).resolve()
        if not file.is_file():
            raise BadInput(f"there is no file {path!r}")
        with _importing(f"file {path!r}"):
            return self._neighbours.loaded_from(file) or _executed(file)


def _nearest(name: str, module: ModuleType) -> str:
    """The name in ``module`` that is most like ``name``, or what it defines itself, as the end of a sentence."""
    there = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
    near = get_close_matches(name, there, n=1)
    if near:
        return f", did you mean {near[0]!r}?"
    own = [each for each in there if getattr(vars(module)[each], "__module__", None) == module.__name__]
    return f"; it has {', '.join(own[:_MOST_NAMED])}" if own else ""


def factory(target: str) -> Callable[..., Any]:
    """The callable that ``target`` names, which may be one that makes a model."""
    function = load(target)
    check_makes(target, function)
    return function


def check_makes(target: str, function: Callable[..., Any], what: str = "a model") -> None:
    """Refuse, before it is called, what is Python's own: to call it may stop the program, and makes nothing of use."""
    if _is_pythons_own(function):
        raise BadInput(
            f"{target!r} is built in or of Python's standard library, so it does not make {what}: "
            "name a function of yours or of a package"
        )


def _is_pythons_own(function: Any) -> bool:
    function = unwrap(function)
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if isinstance(function, _BUILT_IN):
        return True
    if isinstance(function, FunctionType):
        file: str | None = function.__code__.co_filename
    else:
        module = sys.modules.get((function if isinstance(function, type) else type(function)).__module__)
        file = "" if module is None else getattr(module, "__file__", None)
    if file is None or file.startswith("<frozen"):
        return True
    path = Path(file)
    return path.is_relative_to(_LIBRARY) and not _PACKAGES.intersection(path.parts)


def called(target: str, function: Callable[..., Any]) -> Any:
    """What the function that ``target`` names returns for no arguments."""
    try:
        return function()
    except SystemExit as end:
        raise BadInput(f"{target!r} is called without arguments and ended the program by {_words(end)}") from end
    except Exception as error:
        raise BadInput(f"{target!r} is called without arguments and raised {in_words(error)}") from error


@contextmanager
def running(*targets: str, as_json: bool) -> Iterator[None]:
    """While users' code runs: that it ended the program or raised is said, and what it prints goes to stderr where
    stdout is to hold JSON and nothing else."""
    names = " or ".join(map(repr, targets))
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        try:
            yield
        except SystemExit as end:
            raise BadInput(f"{names} ended the program by {_words(end)}") from end
        except ConvwrightError:
            raise
        except Exception as error:
            if not is_the_callers(error):
                raise
            raise BadInput(f"{names} ran at first, and later raised {in_words(error)}") from error


def _words(end: SystemExit) -> str:
    """The call that ends a program so."""
    return f"sys.exit({'' if end.code is None else repr(end.code)})"


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _folder(place: str) -> Path:
    """Where modules are looked for first: beside a file, as `python file.py` does, or else in the present directory."""
    return Path(place).resolve().parent if _is_file(place) else Path.cwd()


def _by_name(name: str) -> ModuleType:
    try:
        with _importing(f"module {name!r}"):
            module = import_module(name)
    except BadInput:
        if Path(name).is_file():
            raise BadInput(f"a target's file is one of Python, whose name ends in .py, got {name!r}") from None
        _refuse_folder(name)
        raise
    if getattr(module, "__file__", None) is None and Path(name).is_dir():
        del sys.modules[name]  # any folder can be imported
        _refuse_folder(name)
    return module


def _refuse_folder(place: str) -> None:
    if Path(place).is_dir():
        is_engine = (Path(place) / "plan.json").is_file()
        instead = "; `convwright run` takes the folder of an engine" if is_engine else ""
        raise BadInput(f"a target is module:function or path/to/file.py:function, and {place!r} is a folder{instead}")


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
