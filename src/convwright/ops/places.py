"""Where modules hold certain functions by name, so that these can be exchanged, and found again quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Names = dict[str, Any]


class Places:
    """Names of modules under which functions that are exchanged were found.

    A process has thousands of modules with a hundred thousand names. Looking through them all takes 4 ms, so it is done
    once; from then on only modules are looked through that are new or have got other names.
    """

    def __init__(self) -> None:
        self._modules: list[tuple[str, int]] = []
        self._spaces: list[tuple[str, Names]] = []
        self._sizes: list[int] = []
        self._found: dict[tuple[str, str], Names] = {}

    def exchange(
        self, by_id: Mapping[int, Any], is_left_alone: Callable[[str], bool], *, thorough: bool = False
    ) -> None:
        """Put ``by_id[id(f)]`` in the place of each function ``f`` that a module holds; ``thorough`` looks at all."""
        # What is put in is found as well, since it is to be taken out again.
        self._look({*by_id, *map(id, by_id.values())}, thorough)
        for (module, name), names in list(self._found.items()):
            held = names.get(name)
            if id(held) in by_id and not is_left_alone(module):
                names[name] = by_id[id(held)]

    def _look(self, ids: set[int], thorough: bool) -> None:
        modules = [(name, id(module)) for name, module in list(sys.modules.items())]
        if thorough or modules != self._modules:
            self._list_modules(modules, thorough)
        sizes = [len(names) for _, names in self._spaces]
        if sizes != self._sizes:
            for (module, names), size, before in zip(self._spaces, sizes, self._sizes, strict=True):
                if size != before:
                    found = [name for name, held in list(names.items()) if id(held) in ids]
                    self._found.update({(module, name): names for name in found})
            self._sizes = sizes

    def _list_modules(self, modules: list[tuple[str, int]], thorough: bool) -> None:
        """All that there are now. What is known of those that are gone is forgotten, and thoroughly of all."""
        known = {} if thorough else {id(names): n for (_, names), n in zip(self._spaces, self._sizes, strict=True)}
        there = list(sys.modules.items())
        self._spaces = [(name, vars(module)) for name, module in there if isinstance(module, ModuleType)]
        self._sizes = [known.get(id(names), -1) for _, names in self._spaces]
        present = {id(names) for _, names in self._spaces}
        self._found = {place: names for place, names in self._found.items() if id(names) in present}
        self._modules = modules
