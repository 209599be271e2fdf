"""A benchmark under way: one search after the other, each kept as soon as it is known."""

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

# What a problem may raise that leaves the next one possible: too little memory, a library that fails.
_FAILURES = (ConvwrightError, RuntimeError, NotImplementedError, ValueError, OSError, MemoryError)

# What a search says of itself: its step, how much of that is done, and of how much.
Doing = Callable[[str, int, int], None]
Search = Callable[[ConvProblem, Doing], Findings]
Progress = Callable[[int, int, str], None]


@dataclass(slots=True)
class Run:
    """``records`` are those of the first rows of ``suite``, in their order; ``last`` is the latest search itself."""

    suite: Suite
    asked: Asked
    search: Search
    lines: Lines | None = None
    records: list[Record] = field(default_factory=list)
    last: Findings | None = None

    def go(self, progress: Progress, *, resume: bool) -> None:
        """Search for every row; those that are in the file already are taken from there."""
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
            raise BadInput("--resume goes on with the file that --out names, got no --out")
        keyed = ((key_of(record), record) for record in self.lines.read())
        return {key: record for key, record in keyed if key is not None}

    def _searched(self, row: Row, tell: Callable[[str], None]) -> Record:
        begun_s = perf_counter()
        try:
            self.last = self.search(row.problem, lambda step, done, of: tell(f"{row.name}: {doing(step)}"))
        except BadInput:
            raise  # What is asked for cannot be, and the same would be said of every row.
        except _FAILURES as error:
            if self.asked.device.kind == "cuda" and self.asked.device.present:
                torch.cuda.synchronize(self.asked.device.torch_name)  # raises again where the device itself is at fault
            return self.asked.failure(row, error)
        return self.asked.record(row, self.last, perf_counter() - begun_s)
