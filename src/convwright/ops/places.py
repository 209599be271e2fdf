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
        self._modules: list[tuple[str, ModuleType]] = []
        self._spaces: list[tuple[str, Names]] = []
        self._sizes: list[int] = []
        self._found: dict[tuple[str, str], Names] = {}

    def exchange(
        self, by_id: Mapping[int, Any], is_left_alone: Callable[[str], bool], *, thorough: bool = False
    ) -> None:
        """Put ``by_id[id(f)]`` in the place of each function ``f`` that a module holds; ``thorough`` looks at all."""
        self._look(by_id, thorough)
        for (module, name), names in list(self._found.items()):
            held = names.get(name)
            if id(held) in by_id and not is_left_alone(module):
                names[name] = by_id[id(held)]

    def _look(self, by_id: Mapping[int, Any], thorough: bool) -> None:
        modules = [*sys.modules.items()]
        if thorough or modules != self._modules:
            known = {} if thorough else {id(names): n for (_, names), n in zip(self._spaces, self._sizes, strict=True)}
            self._modules = modules
            self._spaces = [(name, vars(module)) for name, module in modules if isinstance(module, ModuleType)]
            self._sizes = [known.get(id(names), -1) for _, names in self._spaces]
        sizes = [len(names) for _, names in self._spaces]
        if sizes != self._sizes:
            for (module, names), size, before in zip(self._spaces, sizes, self._sizes, strict=True):
                if size != before:
                    found = [name for name, held in list(names.items()) if id(held) in by_id]
                    self._found.update({(module, name): names for name in found})
            self._sizes = sizes
