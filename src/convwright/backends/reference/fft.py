"""``reference/fft``: each plane is transformed as a whole. The cost hardly depends on the filter's size."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.reference.frequency.fourier import Fourier, lines, links_us, without_products
from convwright.backends.reference.frequency.plan import FourierPlan
from convwright.backends.reference.operands import offer
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """It computes every problem that has products. With a stride it also computes the outputs that are skipped."""
    reason = without_products(problem)
    if reason is not None:
        yield Refusal("reference/fft", reason)
        return
    whole = Fourier(problem, [line.whole() for line in lines(problem)])
    yield offer(problem, "fft", whole.workspace_bytes, saves_products=True, links_us=links_us(device))


def plan(candidate: Candidate) -> Plan:
    return FourierPlan(candidate, [line.whole() for line in lines(candidate.problem)])
