"""How much a search does. Modes ``quick`` and ``full`` are two settings of one search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convwright.settings import Mode


@dataclass(frozen=True, slots=True)
class Effort:
    """Shares are of the whole budget, or of what is left where the comment says so.

    A ``hurried`` search ends within its budget: it skips what cannot win, checks until one candidate is right, and
    times that once more. Any other search times and checks as much as time allows.
    """

    hurried: bool
    # Quick timings start within the first share; those of kernels, which come late, within the second; and those of
    # candidates that cannot win, which may take 0.1 s each, within a third of the budget.
    looking: float
    looking_late: float
    hopeless: float
    # A call that takes this share is not repeated in a quick timing; a library's first run may link for this long.
    patience: float
    linking: float
    # Unlisted configurations are tried for this many of the fastest algorithms, for this additional share.
    walked: int
    walking: float
    # How many candidates are timed side by side with PyTorch's own call, if so many calls of each fit into a share of
    # what is left; the first few in any case.
    in_heat: int
    fewest_in_heat: int
    heat_calls: Mapping[str, int]
    heat: float
    # Shares of what is left: the latest start of a check, and the final for so many candidates.
    checking: float
    finalists: int
    final: float
    # If a final does not show whether PyTorch's own call is beaten, the likeliest winners are timed again, this often.
    overtimes: int
    # The number of chains of rewrites to plan; None means all.
    chains: int | None


QUICK = Effort(
    hurried=True, looking=0.4, looking_late=0.4, hopeless=0.0, patience=0.07, linking=0.1, walked=0, walking=0.0,
    in_heat=3, fewest_in_heat=1, heat_calls={"cpu": 4, "cuda": 8}, heat=0.35, checking=1.0, finalists=1, final=1.0,
    overtimes=0, chains=3,
)  # fmt: skip
FULL = Effort(
    hurried=False, looking=0.5, looking_late=0.7, hopeless=0.25, patience=0.02, linking=0.25, walked=3, walking=0.1,
    in_heat=32, fewest_in_heat=3, heat_calls={"cpu": 30, "cuda": 30}, heat=0.25, checking=0.3, finalists=4, final=0.6,
    overtimes=2, chains=None,
)  # fmt: skip
# Quick timings alone, to rank the candidates of an inner problem.
GLANCE = Effort(
    hurried=False, looking=1.0, looking_late=1.0, hopeless=0.0, patience=0.05, linking=0.1, walked=0, walking=0.0,
    in_heat=0, fewest_in_heat=0, heat_calls={"cpu": 1, "cuda": 1}, heat=0.0, checking=0.0, finalists=0, final=0.0,
    overtimes=0, chains=0,
)  # fmt: skip
# For the candidates that predictions have selected, all of which are timed.
PREDICT_TOP = replace(QUICK, chains=0)
EFFORTS: Mapping[Mode, Effort] = {Mode.PREDICT_TOP: PREDICT_TOP, Mode.QUICK: QUICK, Mode.FULL: FULL}
