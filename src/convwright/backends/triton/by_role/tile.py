"""The part of an output that one program computes, as the configuration of a candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from convwright.core.candidate import Candidate, Config


def launches(candidate: Candidate) -> int:
    """The number of kernels that a call launches."""
    return int(dict(candidate.config).get("launches", 1))


@dataclass(frozen=True, slots=True)
class RoleTile:
    """``columns`` elements of the output, in each of ``rows`` rows if set, computed by ``warps`` warps."""

    rows: int
    columns: int
    warps: int

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """The tile of a candidate."""
        config = dict(candidate.config)
        return cls(int(config.get("rows", 0)), int(config["columns"]), int(config["warps"]))

    @property
    def config(self) -> Config:
        rows = (("rows", self.rows),) if self.rows else ()
        return (*rows, ("columns", self.columns), ("warps", self.warps))
