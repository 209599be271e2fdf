"""The candidate that was asked for by name."""

from __future__ import annotations

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused
from convwright.tuning import listing
from convwright.tuning.search import baseline_of


def named(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate whose id is ``algorithm``, or the first whose id without its configuration is."""
    algorithm = listing.spelled(algorithm, problem)
    offers = listing.of_family(algorithm, problem, device, policy)
    candidates = listing.candidates(offers)
    exact = [c for c in candidates if c.id == algorithm]
    family = [c for c in candidates if c.id.partition("[")[0] == algorithm]
    if exact or family:
        own = baseline_of(family, policy)
        return exact[0] if exact else own or family[0]
    for refusal in listing.refusals(offers):
        if _is_of(algorithm, refusal.id):
            raise Refused(f"{algorithm} cannot compute {problem.key}: {refusal.reason}")
    everything = listing.candidates(listing.direct(problem, device, policy))
    raise BadInput(f"no algorithm here is called {algorithm!r}; for this problem there are {listing.names(everything)}")


def _is_of(algorithm: str, refused: str) -> bool:
    """Whether ``refused`` is the algorithm, its family, or a rewrite that stands first in it.

    >>> _is_of("cudnn/gemm", "cudnn/gemm[math=tf32]"), _is_of("relayout(nhwc, torch/default)", "relayout(nhwc)")
    (True, True)
    """
    family = refused.partition("[")[0]
    return algorithm in (refused, family) or algorithm.startswith((f"{family}(", f"{refused.removesuffix(')')}, "))
