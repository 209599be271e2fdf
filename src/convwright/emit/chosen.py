"""The candidate of cuDNN that a file runs: the named one, or the best known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from sys import maxsize

from convwright.api.finding import find
from convwright.backends.cudnn.classic.operands import filter_layout, is_dense
from convwright.backends.cudnn.graph.listing import finalized
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.limits import too_large
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.emit.literals import check_epilogue, is_engine
from convwright.errors import BackendError, BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.asked import named
from convwright.tuning.find import Findings, resolved

_BACKEND = "cudnn"
AUTO = "auto"


def gpu(device: str | DeviceFacts | None) -> DeviceFacts:
    """The requested GPU, by default the one of this machine."""
    facts = device_facts(device)
    if facts.kind != "cuda":
        asked = "PyTorch sees no GPU in this machine" if device is None else f"got {str(device)!r}"
        raise BadInput(f"a C file needs an NVIDIA GPU: give `device` (--device), such as h200; {asked}")
    return facts


def check_arithmetic(dtype: DType, device: DeviceFacts) -> None:
    """Raise if a GPU cannot compute operands of ``dtype``."""
    if not device.computes(native_arithmetic(dtype, tf32=False)):
        raise BadInput(f"{device.name} has no arithmetic for {dtype}")


def by_name(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate called ``algorithm``. Raises with the reason if there is no C for it."""
    if not isinstance(algorithm, str) or not algorithm.startswith(f"{_BACKEND}/"):
        raise BadInput(
            f"a C file needs an algorithm or an engine of cuDNN, such as cudnn/gemm or cudnn/engine-48, "
            f"got {algorithm!r}"
        )
    _check(problem, device)
    candidate = _permitted_by_name(algorithm, problem, device, policy)
    reason = _objection(candidate)
    if reason is not None:
        raise BadInput(f"{candidate.id}: {reason}")
    return candidate


def _permitted_by_name(algorithm: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Candidate:
    """The candidate with this name that ``policy`` allows; options that the policy leaves open refuse nothing. A name
    without a configuration matches each of its configurations."""
    known = resolved(policy, problem, device)
    asked = policy if policy.max_workspace_bytes is not None else replace(policy, max_workspace_bytes=maxsize)
    candidate = named(algorithm, problem, device, known)
    reason = _forbidden(candidate, asked, policy)
    if reason is None:
        return candidate
    raise BadInput(f"{candidate.id} {reason}")


def _forbidden(candidate: Candidate, known: Policy, asked: Policy) -> str | None:
    """Why a candidate that was not measured is forbidden, by the ``known`` limits or by the policy that a user
    ``asked`` for. If that limits the workspace, an unknown workspace is forbidden."""
    limit = asked.max_workspace_bytes
    if limit is not None and candidate.workspace_bytes is None:
        return f"needs a workspace that is unknown until it is built, and {limit:,} bytes are allowed"
    return listing.objection(candidate, known)


def _check(problem: ConvProblem, device: DeviceFacts) -> None:
    """Raise if no file can compute the problem on a device."""
    check_epilogue(problem)
    reason = too_large(problem, device)
    if reason is not None:
        raise BadInput(f"{problem.key}: {reason}")


def best(
    problem: ConvProblem, device: DeviceFacts, policy: Policy, store: Store | Path | str | None
) -> tuple[Candidate, str]:
    """The best of cuDNN's candidates without measuring, and how it was chosen, as text.

    Candidates that the store has times of come first, then engines in cuDNN's order, then algorithms of the classic
    API, which have no order.
    """
    _check(problem, device)
    found = find(problem, device=device, policy=policy, mode=Mode.HEURISTIC, store=store)
    listed = list(_permitted(found, policy))
    measured = next((candidate for candidate, is_measured in listed if is_measured), None)
    if measured is not None:
        return measured, "by stored measurements"
    permitted = {candidate.id for candidate, _ in listed}
    # Findings are ranked by the peak of their arithmetic; cuDNN's own order is better.
    own = listing.candidates(listing.of_family(f"{_BACKEND}/", problem, device, found.policy))
    engines = (candidate for candidate in own if is_engine(candidate) and candidate.id in permitted)
    engine = next((candidate for candidate in engines if _finalizes(candidate, device)), None)
    if engine is not None:
        return engine, "by cuDNN's heuristic"
    algorithms = [candidate for candidate, _ in listed if not is_engine(candidate)]
    if algorithms:
        return algorithms[0], "as the first that supports it"
    raise Refused(f"cuDNN cannot compute {problem.key} on {device.name}: {_why(found, policy)}")


def _permitted(found: Findings, asked: Policy) -> Iterator[tuple[Candidate, bool]]:
    """Candidates that a file could run and policy allows, best first, each with whether it was measured."""
    for verdict in found.verdicts:
        finding = verdict.finding
        candidate, is_measured = finding.candidate, finding.measurement is not None
        if candidate.backend != _BACKEND or candidate.inner is not None or finding.failure is not None:
            continue
        permitted = verdict.allowed if is_measured else _forbidden(candidate, found.policy, asked) is None
        if permitted and _objection(candidate) is None:
            yield candidate, is_measured


def _finalizes(candidate: Candidate, device: DeviceFacts) -> bool:
    """Whether cuDNN finalizes a plan of its proposal. For an absent device the listing has already checked it."""
    if not device.present:
        return True
    try:
        finalized(candidate, device)
    except BackendError:
        return False
    return True


def _objection(candidate: Candidate) -> str | None:
    """Why a candidate that Python can run cannot be run on raw pointers; None if it can."""
    problem = candidate.problem
    if is_engine(candidate) or is_dense(problem.w, filter_layout(problem)):
        return None
    return (
        f"needs a weight that is dense in {filter_layout(problem)}, since C code cannot pack one; "
        f"write w={filter_layout(problem)} in the problem's tag, got strides {problem.w.strides}"
    )


def _why(found: Findings, asked: Policy) -> str:
    refused = next((refusal for refusal in found.refusals if refusal.id.startswith(f"{_BACKEND}/graph")), None)
    if refused is not None:
        return refused.reason
    verdict = next((v for v in found.verdicts if v.finding.candidate.backend == _BACKEND), None)
    if verdict is None:
        return "it has no candidates"
    candidate = verdict.finding.candidate
    return f"{candidate.id} {_forbidden(candidate, found.policy, asked) or verdict.reason}"
