"""The rows of a suite under each setting that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from stages import Answer

from convwright import suites
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem


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


def rows(options: argparse.Namespace) -> Iterator[Asked]:
    """All that is asked for, one setting after the other."""
    for dtype, batch, direction in product(options.dtype, options.batch, options.direction):
        suite = suites.load(options.suite).with_(
            dtype=dtype, batch=batch, direction=direction, layout=options.layout, epilogue=options.epilogue
        )
        flagged = options.device.startswith("cuda") and DType.parse(dtype) is DType.FP32
        for tf32 in options.tf32 if flagged else (None,):
            for index, row in list(enumerate(suite.rows))[options.rows]:
                yield Asked(index, row.name, row.problem, batch, tf32)
