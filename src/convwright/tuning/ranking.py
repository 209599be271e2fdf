"""The order in which candidates are compiled and looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from operator import itemgetter

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.predictor import expected_us
from convwright.prediction.estimates import ESTIMATES
from convwright.prediction.physics import least_us, moved_bytes, times_idle
from convwright.tuning.listing import spread

# Sorts candidates, most promising first.
Rank = Callable[[Sequence[Candidate]], list[Candidate]]
# Their expected times in microseconds, None where nothing is known.
Times = Callable[[Sequence[Candidate]], Sequence[float | None]]

# Each further configuration of an algorithm counts as slower by this share.
_BEHIND = 1 / 6
# With less time than this almost nothing is compiled.
_LEAST_WITHIN_US = 1e6


def by_promise(
    listed: Sequence[Candidate],
    device: DeviceFacts,
    times: Times | None = None,
    within_us: float = inf,
) -> list[Candidate]:
    """Sort by least time needed; ties keep their backends' order, after all others if their tiles are mostly idle.
    Within a backend, kernels that are compiled are sorted among themselves by prediction, fastest first.

    Candidates that take long to compile come later, especially if there is little time (``within_us``). Without
    ``times``, their backends' estimates count.
    """

    def need(candidate: Candidate) -> tuple[float, int, int]:
        return least_us(candidate, device) or 0.0, times_idle(candidate.leaf), moved_bytes(candidate)

    def delay(candidate: Candidate) -> float:
        return 1 + candidate.leaf.compile_s * 1e6 / max(within_us, _LEAST_WITHIN_US)

    ordered, predicted = sorted(spread(listed), key=need), dict[str, list[tuple[float, Candidate]]]()
    kernels = [candidate for candidate in ordered if candidate.leaf.compiles]
    expected = times(kernels) if times is not None else expected_us(ESTIMATES.predict_all(kernels, device))
    for candidate, time_us in zip(kernels, expected, strict=True):
        if time_us is not None:
            predicted.setdefault(candidate.leaf.backend, []).append((time_us * delay(candidate), candidate))
    turns = {backend: iter(_by_prediction(group)) for backend, group in predicted.items()}
    known = {candidate for group in predicted.values() for _, candidate in group}
    return [next(turns[each.leaf.backend]) if each in known else each for each in ordered]


def _by_prediction(group: Sequence[tuple[float, Candidate]]) -> list[Candidate]:
    """Fastest first. Configurations of an algorithm differ by less than the error of predictions, so each further one
    counts as slower."""
    ahead = Counter[str]()
    promised: list[tuple[float, Candidate]] = []
    for time_us, candidate in sorted(group, key=itemgetter(0)):
        family = candidate.family
        promised.append((time_us * (1 + _BEHIND * ahead[family]), candidate))
        ahead[family] += 1
    return [candidate for _, candidate in sorted(promised, key=itemgetter(0))]
