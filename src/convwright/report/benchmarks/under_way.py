"""A running benchmark: one search after the other. Each record is written as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import torch

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, ConvwrightError
from convwright.report.benchmarks.lines import Lines
from convwright.report.benchmarks.result import Asked, Record, key_of
from convwright.suites.suite import Row, Suite
from convwright.tuning.find import Findings
from convwright.wording.progress import doing

# Errors of one problem after which the next one is tried: too little memory, or a library that fails.
_FAILURES = (ConvwrightError, RuntimeError, NotImplementedError, ValueError, OSError, MemoryError)

# The progress of a search: its step, how much of the step is done, and of how much.
Doing = Callable[[str, int, int], None]
Search = Callable[[ConvProblem, Doing], Findings]
Progress = Callable[[int, int, str], None]


@dataclass(slots=True)
class Run:
    """``records`` belong to the first rows of ``suite``, in order. ``last`` is the result of the latest search."""

    suite: Suite
    asked: Asked
    search: Search
    lines: Lines | None = None
    records: list[Record] = field(default_factory=list)
    last: Findings | None = None

    def go(self, progress: Progress, *, resume: bool) -> None:
        """Search for every row. With ``resume``, rows that the file already has are read from it."""
        known = self._known() if resume else {}
        for done, row in enumerate(self.suite.rows):
            tell = partial(progress, done, len(self.suite.rows))
            tell(row.name)
            record = known.get(self.asked.key(row))
            if record is None:
                record = self._searched(row, tell)
                if self.lines is not None:
                    self.lines.add(record)
            self.records.append(record)
        progress(len(self.suite.rows), len(self.suite.rows), "")

    def _known(self) -> dict[tuple[object, ...], Record]:
        if self.lines is None:
            raise BadInput("--resume continues the file that --out names: give --out too")
        keyed = ((key_of(record), record) for record in self.lines.read())
        return {key: record for key, record in keyed if key is not None}

    def _searched(self, row: Row, tell: Callable[[str], None]) -> Record:
        begun_s = perf_counter()
        try:
            self.last = self.search(row.problem, lambda step, done, of: tell(f"{row.name}: {doing(step)}"))
        except BadInput:
            raise  # it would be the same for every row
        except _FAILURES as error:
            if self.asked.device.kind == "cuda" and self.asked.device.present:
                torch.cuda.synchronize(self.asked.device.torch_name)  # raises again if the device itself failed
            return self.asked.failure(row, error)
        return self.asked.record(row, self.last, perf_counter() - begun_s)
