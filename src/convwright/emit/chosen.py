"""Which of cuDNN's candidates a file is to run: the one that is named, or the best that is known."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.cudnn.classic.operands import filter_layout, is_dense
from convwright.backends.cudnn.graph.listing import finalized
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.fusing import is_rare
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.literals import is_engine
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.machine import device_facts
from convwright.ops.face import find
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.find import Findings, resolved
from convwright.tuning.keeping.store import Store
from convwright.tuning.session import named

_BACKEND = "cudnn"
AUTO = "auto"


def gpu(device: str | DeviceFacts | None) -> DeviceFacts:
    """The GPU that is asked for, by default the one at hand."""
    facts = device_facts(device)
    if facts.kind != "cuda":
        asked = "PyTorch sees no GPU here" if device is None else f"got {str(device)!r}"
        raise BadInput(f"a C file is emitted for an NVIDIA GPU: name one that is elsewhere, such as h200; {asked}")
    return facts


def check_epilogue(problem: ConvProblem) -> None:
    """Refuse an epilogue that no template writes."""
    if is_rare(problem):
        raise BadInput(
            "a C file fuses residual, bias and relu behind a forward convolution, "
            f"got the epilogue {problem.epilogue} on {problem.direction}"
        )


def by_name(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate called ``algorithm``, or the reason why there is no C for it."""
    if not algorithm.startswith(f"{_BACKEND}/"):
        raise BadInput(
            f"a C file runs an algorithm or an engine of cuDNN's, such as cudnn/gemm or cudnn/engine-48, "
            f"got {algorithm!r}"
        )
    check_epilogue(problem)
    candidate = named(algorithm, problem, device, resolved(policy, problem, device))
    reason = _objection(candidate)
    if reason is not None:
        raise BadInput(f"{candidate.id}: {reason}")
    return candidate


def best(problem: ConvProblem, device: DeviceFacts, policy: Policy, store: Store | None) -> tuple[Candidate, str]:
    """The best of cuDNN's candidates that is known without measuring, and in words how it is known.

    What the store has a time of comes first, then engines in cuDNN's own order, then the classic API's algorithms,
    which have no order.
    """
    check_epilogue(problem)
    found = find(problem, device=device, policy=policy, mode=Mode.HEURISTIC, store=store)
    listed = list(_permitted(found))
    measured = next((candidate for candidate, is_measured in listed if is_measured), None)
    if measured is not None:
        return measured, "by stored measurements"
    permitted = {candidate.id for candidate, _ in listed}
    # Findings are ranked by the peak of what they compute with, which cuDNN knows better.
    own = listing.candidates(listing.of_family(f"{_BACKEND}/", problem, device, found.policy))
    engines = (candidate for candidate in own if is_engine(candidate) and candidate.id in permitted)
    engine = next((candidate for candidate in engines if _finalizes(candidate, device)), None)
    if engine is not None:
        return engine, "by cuDNN's heuristic"
    algorithms = [candidate for candidate, _ in listed if not is_engine(candidate)]
    if algorithms:
        return algorithms[0], "as the first that serves"
    raise Refused(f"nothing of cuDNN's serves {problem.key} on {device.name}: {_why(found)}")


def _permitted(found: Findings) -> Iterator[tuple[Candidate, bool]]:
    """What a file could run and policy allows, in the order of what is known, and whether it was measured."""
    for verdict in found.verdicts:
        finding = verdict.finding
        candidate, is_measured = finding.candidate, finding.measurement is not None
        if candidate.backend != _BACKEND or candidate.inner is not None or finding.failure is not None:
            continue
        permitted = verdict.allowed if is_measured else listing.objection(candidate, found.policy) is None
        if permitted and _objection(candidate) is None:
            yield candidate, is_measured


def _finalizes(candidate: Candidate, device: DeviceFacts) -> bool:
    """Whether cuDNN makes a plan of what it proposed. For a device elsewhere that was found out at the listing."""
    if not device.present:
        return True
    try:
        finalized(candidate, device)
    except BackendError:
        return False
    return True


def _objection(candidate: Candidate) -> str | None:
    """Why a candidate that Python can run cannot be run on raw pointers, or None where it can."""
    problem = candidate.problem
    if is_engine(candidate) or is_dense(problem.w, filter_layout(problem)):
        return None
    return (
        f"reads a weight that is dense in {filter_layout(problem)}, and in C nobody packs one that is not; "
        f"write w={filter_layout(problem)} in the problem's tag, got strides {problem.w.strides}"
    )


def _why(found: Findings) -> str:
    refused = next((refusal for refusal in found.refusals if refusal.id.startswith(f"{_BACKEND}/graph")), None)
    if refused is not None:
        return refused.reason
    verdict = next((v for v in found.verdicts if v.finding.candidate.backend == _BACKEND), None)
    return "it offers nothing" if verdict is None else f"{verdict.finding.candidate.id} {verdict.reason}"
