"""Why an algorithm cannot compute a problem: in its library's own words, where that has more to say than it returns."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryFile
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
from convwright.tuning.asked import is_called, unknown
from convwright.tuning.attempt import Request
from convwright.tuning.process import end_in_words, search_path
from convwright.tuning.search import resolved
from convwright.tuning.session import named

COMMAND = [sys.executable, "-P", "-m", "convwright.tuning.attempt"]
MOST_ATTEMPT_S = 120.0
# A name without a backend is one of cuDNN's: no other has refusals that need to be looked up by name.
_UNNAMED = "cudnn"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why ``algorithm`` cannot compute ``problem`` on ``device``; or that it can, where it ``serves``.

    ``causes`` are the conditions that failed as the library's own log names them, the deepest first; none where it
    names none, and where no library had to be asked. ``str()`` of it is a line, and one more for each of them.
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
    """Ask the library itself where it answers, in a process of its own, or else look at what the backends list.

    Where rewrites stand around an algorithm, the question is about the problem that they leave to it.
    """
    if algorithm in {each.name for each in REWRITES if each.kind == problem.kind}:
        return _rewrite(algorithm, problem, device)
    id_ = algorithm if "/" in algorithm or "(" in algorithm else f"{_UNNAMED}/{algorithm}"
    id_ = listing.spelled(listing.spaced(id_), problem)
    if id_.count("[") != id_.count("]"):
        raise BadInput(f"a configuration is written in brackets, for example cudnn/engine-38[k2=1], got {algorithm!r}")
    if (within := next(listing.inside(id_, problem, device), None)) is not None:
        step, inner_id = within
        return _inside(problem, id_, device, why(step.inner, inner_id, device))
    family, _, name = id_.partition("/")
    member = backend(family, problem.kind) if family in names(problem.kind) else None
    if isinstance(member, Explains) and member.can_be_asked(name, device):
        return _asked(member, Request(family, name, problem, device), id_)
    return _listed(problem, id_, device, algorithm)


def _inside(problem: Problem, id_: str, device: DeviceFacts, inner: Reason) -> Reason:
    """What an answer for the problem inside a rewrite says of the whole."""
    left = f"{inner.algorithm}, for which {inner.problem.key} is left,"
    if not inner.serves:
        return Reason(problem, device, id_, False, f"{left} cannot compute that: {inner.sentence}", inner.causes)
    candidate = listing.with_id(id_, problem, device, resolved(Policy(), problem, device))
    if candidate is not None:
        return _served(candidate, device, id_)
    return Reason(problem, device, id_, True, f"{left} can compute that: {inner.sentence}")


def _rewrite(name: str, problem: Problem, device: DeviceFacts) -> Reason:
    """How a rewrite can stand around what computes a problem, or why it cannot."""
    forms, refusals = listing.forms(name, problem, device)
    if forms:
        return Reason(problem, device, name, True, f"it can stand around others as {', '.join(forms)}")
    return Reason(problem, device, name, False, "; ".join(refusal.reason for refusal in refusals))


def _listed(problem: Problem, id_: str, device: DeviceFacts, asked: str) -> Reason:
    """What the backends' list says of it, or of the first of its name."""
    policy = resolved(Policy(), problem, device)
    try:
        return _served(named(id_, problem, device, policy), device, id_)
    except Refused as refused:
        return Reason(problem, device, id_, False, str(refused).partition(": ")[2])
    except BadInput:
        offers = [each for each in listing.of_family(id_, problem, device, policy) if is_called(each.id, id_)]
        if not offers and "/" not in asked:  # who asked has named no backend
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


def _asked(member: Explains, request: Request, id_: str) -> Reason:
    """What the library said, with what its log says of it."""
    answer, log = _attempted(request, member)
    if "mistake" in answer:
        raise BadInput(answer["mistake"])
    if "workspace_bytes" in answer:
        sentence = f"it is ready to run with {_workspace(answer['workspace_bytes'])}"
        return Reason(request.problem, request.device, id_, True, sentence)
    sentence, causes = answer["refused"].removeprefix(f"{id_}: "), member.causes(log)
    if answer.get("logged") and log and not causes:
        sentence += "; its log names no condition"
    return Reason(request.problem, request.device, id_, False, sentence, causes)


def _workspace(nbytes: int) -> str:
    return f"{nbytes:,} bytes of workspace" if nbytes else "no workspace"


def _attempted(request: Request, member: Explains) -> tuple[dict[str, Any], str]:
    """The answer and the log of a process that was begun for this; one that died of it is a refusal, too."""
    # As this process finds its modules, however it came to.
    own = {"PYTHONPATH": search_path(), "CONVWRIGHT_STORE": "none"}
    with TemporaryFile() as answer:
        try:
            done = subprocess.run(
                [*COMMAND, str(answer.fileno())], input=pickle.dumps(request), pass_fds=(answer.fileno(),),
                env={**os.environ, **own, **member.log_environment}, timeout=MOST_ATTEMPT_S,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"refused": f"it did not answer within {MOST_ATTEMPT_S:.3g} s, in a process of its own"}, ""
        except OSError as error:
            raise BackendError(f"the process that asks {request.backend} could not be started: {error}") from error
        answer.seek(0)
        said, log = answer.read(), done.stderr.decode(errors="replace")
    return (json.loads(said) if said else _died(done.returncode, log, request)), log


def _died(code: int, log: str, request: Request) -> dict[str, Any]:
    """A signal is the library's doing; anything else is a mistake of ours, which is raised."""
    if code < 0:
        return {"refused": f"its process {end_in_words(code)}"}
    last = (log.strip().splitlines() or ["without a word"])[-1]
    raise BackendError(f"the process that asks {request.backend} {end_in_words(code)}: {last}")
