"""How much a search does. Modes ``quick`` and ``full`` are two settings of one search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from convwright.settings import Mode


@dataclass(frozen=True, slots=True)
class Effort:
    """Shares are of the whole budget, or of what is left where the comment says so.

    A search that is ``hurried`` ends within its budget: it looks at nothing that cannot win, checks until one candidate
    is right, and times that once more. Any other times and checks all that time allows.
    """

    hurried: bool
    # Quick timings begin within this share; those of kernels, which come late, within another; and those of what cannot
    # win, which may take a tenth of a second each, within a third.
    looking: float
    looking_late: float
    hopeless: float
    # A call that takes this share is not repeated at a look, and a library may link for so long at a first run.
    patience: float
    linking: float
    # So many of the fastest algorithms may have configurations looked at that are not listed, for such a share more.
    walked: int
    walking: float
    # So many beside PyTorch's own call are timed side by side, where there is time for so many calls of each within a
    # share of what is left; the first few in any case.
    in_heat: int
    fewest_in_heat: int
    heat_calls: Mapping[str, int]
    heat: float
    # Shares of what is left within which checks are begun, and for the final of so many.
    checking: float
    finalists: int
    final: float
    # Where a final leaves open whether PyTorch's own call is beaten, the likeliest are timed again, so often.
    overtimes: int
    # Chains of rewrites that are planned; None means all.
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
# Quick timings alone, which say what of a problem inside a rewrite is worth more than that.
GLANCE = Effort(
    hurried=False, looking=1.0, looking_late=1.0, hopeless=0.0, patience=0.05, linking=0.1, walked=0, walking=0.0,
    in_heat=0, fewest_in_heat=0, heat_calls={"cpu": 1, "cuda": 1}, heat=0.0, checking=0.0, finalists=0, final=0.0,
    overtimes=0, chains=0,
)  # fmt: skip
# What predictions have left of the candidates, none of which is passed over.
PREDICT_TOP = replace(QUICK, chains=0)
EFFORTS: Mapping[Mode, Effort] = {Mode.PREDICT_TOP: PREDICT_TOP, Mode.QUICK: QUICK, Mode.FULL: FULL}
