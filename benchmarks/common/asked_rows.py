"""The rows of a suite under each setting that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from common.pace import sliced
from common.stages import Answer

from convwright import suites
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.suites import Row


@dataclass(frozen=True, slots=True)
class Asked:
    """One row under one setting. ``batch`` is None where the suite says it, ``tf32`` where that flag plays no part."""

    index: int
    name: str
    problem: ConvProblem
    batch: int | None
    tf32: bool | None

    @property
    def question(self) -> Answer:
        return {"problem": self.problem.key, "tf32": self.tf32}

    @property
    def key(self) -> tuple[object, ...]:
        return self.name, self.problem.key, self.tf32


def picked(text: str) -> slice | frozenset[str]:
    """The rows that are meant: as a slice, or by their names.

    >>> picked("0:94:3")
    slice(0, 94, 3)
    >>> sorted(picked("training-038,training-040"))
    ['training-038', 'training-040']
    """
    return sliced(text) if ":" in text else frozenset(text.split(","))


def rows(options: argparse.Namespace) -> Iterator[Asked]:
    """All that is asked for, one setting after the other."""
    asked = product(options.dtype, options.batch, options.direction, options.epilogue)
    for dtype, batch, direction, epilogue in asked:
        suite = suites.load(options.suite).with_(
            dtype=dtype, batch=batch, direction=direction, layout=options.layout, epilogue=epilogue
        )
        flagged = options.device.startswith("cuda") and DType.parse(dtype) is DType.FP32
        for tf32 in options.tf32 if flagged else (None,):
            for index, row in _of(list(enumerate(suite.rows)), options.rows):
                yield Asked(index, row.name, row.problem, batch, tf32)


def _of(numbered: list[tuple[int, Row]], wanted: slice | frozenset[str]) -> list[tuple[int, Row]]:
    if isinstance(wanted, slice):
        return numbered[wanted]
    if missing := wanted - {row.name for _, row in numbered}:
        raise BadInput(f"the suite has no row {', '.join(sorted(missing))}")
    return [(index, row) for index, row in numbered if row.name in wanted]
