"""Winograd's minimal filtering for filters of 3 taps in every dimension: F(2, 3) and F(4, 3), nested in 2-D and 3-D.

m outputs of one dimension take m + 2 products instead of 3 m. In 2-D, m = 2 needs 2.25 times fewer products and m = 4
needs 4 times fewer. The price is larger rounding errors, which grow with m.
"""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.reference.minimal_filtering.plan import Winograd, WinogradPlan
from convwright.backends.reference.minimal_filtering.tiles import Tiles
from convwright.backends.reference.minimal_filtering.transforms import OUTPUTS, TAPS, transforms
from convwright.backends.reference.operands import offer
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem

ALGORITHM = "winograd"


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """One candidate for each m, or the reason why there is none."""
    reason = refusal_reason(problem)
    for m in OUTPUTS:
        if reason is not None:
            yield Refusal(f"reference/{ALGORITHM}[m={m}]", reason)
            continue
        workspace_bytes = Winograd(problem, transforms(m)).buffers.nbytes
        multiplied = products(problem, m)
        yield offer(problem, ALGORITHM, workspace_bytes, config=(("m", m),), saves_products=True, products=multiplied)


def plan(candidate: Candidate) -> Plan:
    return WinogradPlan(candidate, transforms(int(dict(candidate.config)["m"])))


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why Winograd's algorithm cannot compute ``problem``; None if it can."""
    if any(stride != 1 for stride in problem.stride):
        return f"stride {problem.stride}: Winograd's tiles need stride 1 in every dimension"
    if any(taps != TAPS for taps in problem.taps):
        return f"a filter of {problem.taps}: these transforms need {TAPS} taps in every dimension"
    return None


def products(problem: ConvProblem, m: int) -> int:
    """Multiplications in the elementwise stage, without the transforms.

    (m + 2)^rank for each tile, pair of channels and image, in every direction. Tiles that extend beyond the result
    count fully.

    >>> problem = ConvProblem.parse("ic8ih8oc8kh3ph1")
    >>> 8 * 8 * 64 * 9 / products(problem, 2), 8 * 8 * 64 * 9 / products(problem, 4)
    (2.25, 4.0)
    """
    tiles = Tiles(problem, m)
    points: int = (m + TAPS - 1) ** problem.rank
    return points * problem.groups * tiles.count * tiles.image_channels * tiles.result_channels
