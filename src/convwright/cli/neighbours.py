"""Modules that lie beside the files of targets: those of one folder are kept apart from those of another."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from convwright.errors import BadInput


@dataclass(slots=True, eq=False)
class _Surroundings:
    """Of one folder: where its files look for modules first, which they may add to, and what they found there."""

    places: list[str]
    modules: dict[str, ModuleType] = field(default_factory=dict)

    def found(self, name: str) -> str | None:
        """The file or folder of the module that is called so; None where there is none."""
        return next(iter(_locations(PathFinder.find_spec(name, self.places))), None)

    def hold(self, module: ModuleType) -> bool:
        own = {os.path.realpath(place) for place in self.places}
        return any(os.path.dirname(each) in own for each in _locations(getattr(module, "__spec__", None)))


class Neighbours:
    """What files import from beside them, folder by folder.

    Two folders may have different modules of the same name, as two states of one project do. Inside ``of`` a name is
    that of the folder. Outside such a name is nobody's: who imports it is refused, and not given the other's.
    """

    def __init__(self) -> None:
        self._of: dict[Path, _Surroundings] = {}
        self._places: list[str] = []
        self._refusal = _Refusal([])

    @contextmanager
    def of(self, folder: Path) -> Iterator[None]:
        """Inside, imports are looked for in ``folder`` first, and modules of other folders are out of the way."""
        self._take_away()
        around = self._of.setdefault(folder, _Surroundings([str(folder)]))
        path, before = list(sys.path), set(sys.modules)
        sys.path[:0] = around.places
        sys.modules.update(around.modules)
        try:
            yield
        finally:
            around.places += [place for place in sys.path if place not in (*path, *around.places)]
            sys.path[:] = path
            new = {_top(name) for name in sys.modules} - before
            own = {name for name in new if name in sys.modules and around.hold(sys.modules[name])}
            around.modules |= {name: sys.modules.pop(name) for name in list(sys.modules) if _top(name) in own}
            self._leave_to_all()

    def _take_away(self) -> None:
        """Undo ``_leave_to_all``."""
        sys.path[:] = [place for place in sys.path if place not in self._places]
        for name, module in [pair for each in self._of.values() for pair in each.modules.items()]:
            if sys.modules.get(name) is module:
                del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self._refusal]

    def _leave_to_all(self) -> None:
        """Let everybody find what is in one folder alone, and nobody what is different in several."""
        every = [each for each in self._of.values() if each.modules]
        self._places = [place for each in every for place in each.places if place not in sys.path]
        sys.path[:0] = self._places
        for each in every:
            known = each.modules.items()
            sys.modules.update({name: module for name, module in known if len(_different(_top(name), every)) < 2})
        if len(every) > 1:
            self._refusal = _Refusal(every)
            # Before what finds modules by sys.path, after what has those that are built in.
            sys.meta_path.insert(sys.meta_path.index(PathFinder), self._refusal)

    def loaded_from(self, file: Path) -> ModuleType | None:
        """The module that was made of ``file`` before, whoever imported it."""
        every = [*(each.modules for each in self._of.values()), sys.modules]
        known = (module for modules in every for module in list(modules.values()))
        return next((module for module in known if getattr(module, "__file__", None) == str(file)), None)


class _SeveralModules(BadInput, ImportError):
    """Nobody can say which is meant; for a library that can do without, a module that there is not."""


class _Refusal:
    """A finder that refuses a name by which different modules go, where one of those would be found."""

    def __init__(self, every: Sequence[_Surroundings]) -> None:
        self._every = every

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        different = _different(name, self._every) if path is None else []
        if len(different) > 1 and set(different) & set(_locations(PathFinder.find_spec(name))):
            raise _SeveralModules(
                f"{name!r} may be {' or '.join(different)}: where folders of several targets have a module of the same "
                "name, a function can import it in its first call only, and a file at its head"
            )


def _different(name: str, every: Sequence[_Surroundings]) -> list[str]:
    """What the name stands for in each of the surroundings, without repetition."""
    return list(dict.fromkeys(found for each in every if (found := each.found(name)) is not None))


def _locations(spec: ModuleSpec | None) -> list[str]:
    """The file of a module, or the folders of a package."""
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [os.path.realpath(folder) for folder in spec.submodule_search_locations]
    return [] if spec.origin is None else [os.path.realpath(spec.origin)]


def _top(name: str) -> str:
    return name.partition(".")[0]
