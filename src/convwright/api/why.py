"""Why an algorithm cannot compute a problem, with the library's own log if that says more than its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convwright.backends.registry import backend, names
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Explains
from convwright.core.policy import Policy
from convwright.errors import BackendError, BadInput, Refused
from convwright.rewrites import REWRITES
from convwright.tuning import listing
from convwright.tuning.asked import is_called, named, unknown
from convwright.tuning.search import resolved
from convwright.tuning.worker import Answer
from convwright.tuning.workers import TaskFailed, Worker, WorkerDied, WorkerNotStarted

MOST_ATTEMPT_S = 120.0
# On a GPU a name without a backend is one of cuDNN's: it alone is asked about engines that no list contains.
_UNNAMED = "cudnn"
_ON_GPUS = ("cudnn", "triton")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why ``algorithm`` cannot compute ``problem`` on ``device``, or that it can (``serves``).

    ``causes`` are the failed conditions that the library's log names, the deepest first. It is empty if the log names
    none, or if no library was asked. ``str()`` gives one line, and one more for each cause.
    """

    problem: Problem
    device: DeviceFacts
    algorithm: str
    serves: bool
    sentence: str
    causes: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "can" if self.serves else "cannot"
        line = f"{self.algorithm} {verb} compute {self.problem.key} on {self.device.name}: {self.sentence}"
        return "\n".join([line, *(f"  {cause}" for cause in self.causes)])

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "problem": self.problem.key,
            "device": self.device.label,
            "algorithm": self.algorithm,
            "serves": self.serves,
            "reason": self.sentence,
            "causes": list(self.causes),
        }


def why(problem: Problem, algorithm: str, device: DeviceFacts) -> Reason:
    """Ask the library in a child process if it can answer, else look the algorithm up in the backends' lists.

    For an algorithm inside rewrites, the question is about the inner problem.
    """
    if algorithm in {each.name for each in REWRITES if each.kind == problem.kind}:
        return _rewrite(algorithm, problem, device)
    id_ = algorithm if "/" in algorithm or "(" in algorithm else _with_backend(algorithm, problem, device)
    id_ = listing.spelled(listing.spaced(id_), problem)
    if id_.count("[") != id_.count("]"):
        raise BadInput(f"a configuration is written in brackets, for example cudnn/engine-38[k2=1], got {algorithm!r}")
    if (within := next(listing.inside(id_, problem, device), None)) is not None:
        step, inner_id = within
        return _inside(problem, id_, device, why(step.inner, inner_id, device))
    family, _, name = id_.partition("/")
    member = backend(family, problem.kind) if family in names(problem.kind) else None
    if isinstance(member, Explains) and member.can_be_asked(name, device):
        return _asked(member, family, name, problem, device)
    return _listed(problem, id_, device, algorithm)


def _with_backend(algorithm: str, problem: Problem, device: DeviceFacts) -> str:
    """The id of an algorithm named without its backend. On a CPU a backend that can run there comes first."""
    policy, refused = resolved(Policy(), problem, device), []
    for family in names(problem.kind) if device.kind == "cpu" else ():
        id_ = f"{family}/{algorithm}"
        offers = [each for each in listing.of_family(id_, problem, device, policy) if is_called(each.id, id_)]
        if listing.candidates(offers):
            return id_
        if offers and family not in _ON_GPUS:
            refused.append(id_)
    return refused[0] if refused else f"{_UNNAMED}/{algorithm}"


def _inside(problem: Problem, id_: str, device: DeviceFacts, inner: Reason) -> Reason:
    """The answer for the whole problem, from the answer for the problem inside a rewrite."""
    left = f"{inner.algorithm}, for which {inner.problem.key} is left,"
    if not inner.serves:
        return Reason(problem, device, id_, False, f"{left} cannot compute that: {inner.sentence}", inner.causes)
    candidate = listing.with_id(id_, problem, device, resolved(Policy(), problem, device))
    if candidate is not None:
        return _served(candidate, device, id_)
    return Reason(problem, device, id_, True, f"{left} can compute that: {inner.sentence}")


def _rewrite(name: str, problem: Problem, device: DeviceFacts) -> Reason:
    """The forms in which a rewrite can wrap a problem, or why it cannot."""
    forms, refusals = listing.forms(name, problem, device)
    if forms:
        return Reason(problem, device, name, True, f"it can stand around others as {', '.join(forms)}")
    return Reason(problem, device, name, False, "; ".join(refusal.reason for refusal in refusals))


def _listed(problem: Problem, id_: str, device: DeviceFacts, asked: str) -> Reason:
    """The answer from the backends' lists, for this algorithm or the first one of its name."""
    policy = resolved(Policy(), problem, device)
    try:
        return _served(named(id_, problem, device, policy), device, id_)
    except Refused as refused:
        return Reason(problem, device, id_, False, str(refused).partition(": ")[2])
    except BadInput:
        offers = [each for each in listing.of_family(id_, problem, device, policy) if is_called(each.id, id_)]
        if not offers and "/" not in asked:  # the user named no backend
            raise unknown(asked, problem, device, policy) from None
        if not offers:
            raise
    first = next(iter(listing.candidates(offers)), offers[0])
    if "[" in id_ and isinstance(first, Candidate):
        return Reason(problem, device, id_, False, f"it has no such configuration; {first.id} is one")
    if isinstance(first, Refusal):
        return Reason(problem, device, id_, False, first.reason)
    return _served(first, device, id_)


def _served(candidate: Candidate, device: DeviceFacts, asked: str) -> Reason:
    needs = "an amount of workspace that only building it tells"
    if candidate.workspace_bytes is not None:
        most = "at most " if candidate.workspace_is_bound else ""
        needs = most + _workspace(candidate.workspace_bytes)
    of = "" if candidate.id == asked else f" as {candidate.id}"
    return Reason(candidate.problem, device, asked, True, f"it is a candidate{of}, with {needs}")


def _asked(member: Explains, family: str, name: str, problem: Problem, device: DeviceFacts) -> Reason:
    """The library's answer, with the causes in its log. If its process dies, this is a refusal, too."""
    id_ = f"{family}/{name}"
    try:
        with Worker(environment={"CONVWRIGHT_STORE": "none", **member.log_environment}) as worker:
            answer: Answer = worker.ask("attempt", family, name, problem, device, patience_s=MOST_ATTEMPT_S)
            worker.leave(1.0)  # completes its log
            log = worker.log
    except WorkerDied as died:
        return Reason(problem, device, id_, False, f"its process {died}")
    except WorkerNotStarted as error:
        raise BackendError(f"the process that asks {family} {error}") from error
    except TaskFailed as error:
        raise BackendError(f"the process that asks {family} failed: {error}") from error
    if answer.mistake is not None:
        raise BadInput(answer.mistake)
    if answer.refusal is None:
        return Reason(problem, device, id_, True, f"it is ready to run with {_workspace(answer.workspace_bytes)}")
    sentence, causes = answer.refusal.removeprefix(f"{id_}: "), member.causes(log)
    if answer.is_logged and log and not causes:
        sentence += "; its log names no condition"
    return Reason(problem, device, id_, False, sentence, causes)


def _workspace(nbytes: int) -> str:
    return f"{nbytes:,} bytes of workspace" if nbytes else "no workspace"
