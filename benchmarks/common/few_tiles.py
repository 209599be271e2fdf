"""Few of a kernel's tiles: compiling is what takes time where all candidates of many problems are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from convwright.core.candidate import Candidate

MOST_TILES = 2


def few_tiles(candidates: Iterable[Candidate]) -> list[Candidate]:
    """All candidates, but of one Triton kernel's tiles the first few."""
    kept, seen = list[Candidate](), Counter[str]()
    for candidate in candidates:
        kernel = candidate.id.partition("[")[0] if candidate.leaf.backend == "triton" else candidate.id
        seen[kernel] += 1
        if seen[kernel] <= MOST_TILES:
            kept.append(candidate)
    return kept
