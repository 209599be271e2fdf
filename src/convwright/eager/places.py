"""Find and replace functions under all module attributes that hold them, quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Names = dict[str, Any]


class Places:
    """Module attributes that held replaced functions.

    A process has thousands of modules with a hundred thousand names. A search through all takes 4 ms, so it happens
    once; later only new modules, and modules with changed names, are searched.
    """

    def __init__(self) -> None:
        self._listed: tuple[list[str], list[int]] = [], []
        self._names: list[str] = []
        self._spaces: list[Names] = []
        self._sizes: list[int] = []
        self._found: dict[tuple[str, str], Names] = {}

    def exchange(
        self, by_id: Mapping[int, Any], is_left_alone: Callable[[str], bool], *, thorough: bool = False
    ) -> None:
        """Replace each function ``f`` in modules by ``by_id[id(f)]``; ``thorough`` searches all modules again."""
        # Replacements are recorded as well, since they are removed again later.
        self._look({*by_id, *map(id, by_id.values())}, thorough)
        for (module, name), names in list(self._found.items()):
            held = names.get(name)
            if id(held) in by_id and not is_left_alone(module):
                names[name] = by_id[id(held)]

    def _look(self, ids: set[int], thorough: bool) -> None:
        # One interpreter step each: a block may be as short as one run of a small model.
        listed = [*sys.modules], [*map(id, [*sys.modules.values()])]
        if thorough or listed != self._listed:
            self._list_modules(thorough)
            self._listed = listed
        sizes = [*map(len, self._spaces)]
        if sizes != self._sizes:
            for module, names, size, before in zip(self._names, self._spaces, sizes, self._sizes, strict=True):
                if size != before:
                    found = [name for name, held in list(names.items()) if id(held) in ids]
                    self._found.update({(module, name): names for name in found})
            self._sizes = sizes

    def _list_modules(self, thorough: bool) -> None:
        """List all present modules. Records of modules that are gone are dropped; ``thorough`` drops all records."""
        known = {} if thorough else dict(zip(map(id, self._spaces), self._sizes, strict=True))
        there = {name: vars(module) for name, module in [*sys.modules.items()] if isinstance(module, ModuleType)}
        self._names, self._spaces = [*there], [*there.values()]
        self._sizes = [known.get(id(names), -1) for names in self._spaces]
        present = {*map(id, self._spaces)}
        self._found = {place: names for place, names in self._found.items() if id(names) in present}
