"""Times for a device on which nothing runs: the store's findings, else predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from math import inf, prod

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.finding import Finding, Interval
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Objective, Policy
from convwright.core.predictor import Prediction, Predictor
from convwright.engine.planning.times import TimedCandidate, at_least, planning_policy
from convwright.errors import BadInput
from convwright.flags import matmul_tf32_allowed
from convwright.graph.operations import Foreign, Operation
from convwright.prediction.data_sheet import operator_us
from convwright.prediction.physics import least_us, own_call_us
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.chains import chains
from convwright.tuning.choose import call_us, choose
from convwright.tuning.predicting import pytorchs_own
from convwright.tuning.recall import Recall
from convwright.tuning.search import baseline_of, resolved
from convwright.tuning.trials.search_input import Progress

# Candidates kept for a problem besides the best.
_MOST_OTHERS = 2
# Chains of rewrites examined; listing the candidates inside one takes as long as listing the problem's own.
_MOST_CHAINS = 4
_PRODUCTS = ("matmul", "bmm", "mm")


class Basis(StrEnum):
    """What the time of a step rests on, most reliable first."""

    NOTHING = "nothing runs"
    MEASURED = "measured"
    PREDICTED = "predicted"
    ROUGH = "roughly"
    SIZE = "its size"
    LIMIT = "at least"


def check_objective(policy: Policy) -> None:
    """Refuse an objective that no predictor supports."""
    if policy.objective is Objective.ENERGY:
        raise BadInput('a network can be planned only for time: give a policy whose objective is "time"')


# Candidates with their times, and what these rest on.
_Known = dict[Candidate, tuple[Interval, Basis]]


class ForecastTimes:
    """A ``TimeSource`` that runs nothing. Findings measured on the device come first; for any other problem, candidates
    are listed and predicted."""

    def __init__(
        self, device: DeviceFacts, policy: Policy, store: Store, predictor: Predictor, *, frugal: bool = False
    ) -> None:
        check_objective(policy)
        self.device = device
        self._policy, self._store, self._predictor, self._frugal = planning_policy(policy), store, predictor, frugal
        self._basis: dict[tuple[Operation, Candidate | None], Basis] = {}

    def basis(self, operation: Operation, candidate: Candidate | None) -> Basis:
        """What a candidate's time rests on."""
        return self._basis.get((operation, candidate), Basis.NOTHING)

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        for done, problem in enumerate(problems):
            progress("predicting", done, len(problems))
            policy = resolved(self._policy, problem, self.device)
            direct = listing.candidates(listing.direct(problem, self.device, policy))
            own = baseline_of([*direct, *pytorchs_own(problem, self.device)], policy)
            yield problem, self._measured(problem, direct, own, policy) or self._predicted(problem, direct, own, policy)

    def of_operator(self, operation: Foreign) -> Interval:
        """The typical time of operators of this size."""
        moved, dtype = sum(spec.nbytes for spec in operation.operands.values()), operation.results[0].dtype
        arithmetic = native_arithmetic(dtype, tf32=matmul_tf32_allowed())
        time_us = operator_us(moved, _flops(operation), arithmetic, self.device)
        self._basis[operation, None] = Basis.LIMIT if time_us is None else Basis.SIZE
        return at_least(0.0) if time_us is None else time_us

    def _measured(
        self, problem: Problem, direct: Sequence[Candidate], own: Candidate | None, policy: Policy
    ) -> tuple[TimedCandidate, ...]:
        """Candidates from the store's findings; empty if those choose none."""
        recall = Recall(problem, self.device, policy, self._store, "direct")
        if not recall.measured():
            return ()
        listed = [*direct, *([own] if own is not None and own not in direct else [])]
        known = recall.known([*listed, *recall.beyond(listed)])
        baseline = None if own is None else known.get(own.id, Finding(own, failure="was not measured"))
        verdicts = choose([*known.values()], baseline, policy)
        allowed = [each.finding for each in verdicts if each.allowed]
        if not any(each.won for each in verdicts):
            return ()
        kept = [(each.candidate, call_us(each, policy)) for each in allowed]
        return self._kept(problem, kept, dict.fromkeys((each.candidate for each in allowed), Basis.MEASURED))

    def _predicted(
        self, problem: Problem, direct: Sequence[Candidate], own: Candidate | None, policy: Policy
    ) -> tuple[TimedCandidate, ...]:
        known = self._predict(self._likely(direct, policy))
        estimated = any(each.estimated_us is not None for each in known)
        learned = any(basis is Basis.PREDICTED for _, basis in known.values())
        if own is not None and own in known and not (estimated or learned):
            known = {own: known[own]}  # a data sheet cannot tell which of two libraries is faster
        elif not estimated:  # none of our kernels serves it directly
            known |= self._rewritten(
                problem, min((time_us.value for time_us, _ in known.values()), default=inf), policy
            )
        if own is not None and own not in known and (not known or problem.kind == "linear"):
            known |= self._predict([own] if listing.objection(own, policy) is None else [])
        if not known:  # nothing is predicted: keep what is listed
            known = self._predict([each for each in direct if listing.objection(each, policy) is None])
        by_workspace = policy.objective is Objective.WORKSPACE
        times: list[TimedCandidate] = [(candidate, time_us) for candidate, (time_us, _) in known.items()]
        times.sort(key=lambda each: (_workspace(each) if by_workspace else 0.0, each[1].value))  # or as backends list
        return self._kept(problem, times, {candidate: basis for candidate, (_, basis) in known.items()})

    def _likely(self, listed: Sequence[Candidate], policy: Policy) -> list[Candidate]:
        """Candidates that the policy allows and that are probably right and fast. An algorithm with fewer
        multiplications may err too much, so it needs its backend's estimate. PyTorch's own call is always allowed."""
        return [
            each for each in listed
            if listing.objection(each, policy) is None and each.backend != "reference"
            and (not each.saves_products or each.estimated_us is not None or each.backend == "torch")
        ]  # fmt: skip

    def _rewritten(self, problem: Problem, best_us: float, policy: Policy) -> _Known:
        """The best candidate inside each of a few rewrite chains that may take less than ``best_us``."""
        found = _Known()
        for chain in chains(problem, self.device)[0][:_MOST_CHAINS]:
            if chain.cannot_win(best_us, self.device):
                continue
            inner = self._likely(listing.candidates(listing.briefly(chain.inner, self.device, policy)), policy)
            wrapped = [chain.wrap(each) for each in inner]
            known = self._predict([each for each in wrapped if listing.objection(each, policy) is None])
            found |= dict(sorted(known.items(), key=lambda each: each[1][0].value)[:1])
        return found

    def _predict(self, candidates: Iterable[Candidate]) -> _Known:
        """Each candidate with its time, in the given order."""
        listed = list(candidates)
        predictions = self._predictor.predict_all(listed, self.device)
        return {each: self._time(each, prediction) for each, prediction in zip(listed, predictions, strict=True)}

    def _time(self, candidate: Candidate, prediction: Prediction | None) -> tuple[Interval, Basis]:
        if prediction is not None:
            return prediction.time_us, Basis.PREDICTED if prediction.in_domain else Basis.ROUGH
        return at_least(least_us(candidate, self.device) or own_call_us(candidate, self.device)), Basis.LIMIT

    def _kept(
        self, problem: Problem, times: Sequence[TimedCandidate], bases: dict[Candidate, Basis]
    ) -> tuple[TimedCandidate, ...]:
        """The best, a few of other algorithms and, with a memory budget, the one with the least workspace."""
        kept = dict[str, TimedCandidate]()
        for each in times:
            assert each[0] is not None
            if len(kept) <= _MOST_OTHERS:
                kept.setdefault(each[0].family, each)
        found = list(kept.values())
        if self._frugal and times and (least := min(times, key=_workspace)) not in found:
            found.append(least)
        for candidate, _ in found:
            assert candidate is not None
            self._basis[problem, candidate] = bases[candidate]
        return tuple(found)


def _flops(operation: Foreign) -> int:
    """FLOPs of matrix products and attention; 0 for other operators, which only move data."""
    shapes, (made, *_) = [spec.shape for spec in operation.inputs], operation.results
    if "attention" in operation.target:
        keys = shapes[1 if len(shapes) > 1 else 0]  # keys and queries may be one tensor
        return 4 * prod(shapes[0]) * keys[-2]
    return 2 * prod(made.shape) * shapes[0][-1] if operation.target.split(".")[1] in _PRODUCTS else 0


def _workspace(timed: TimedCandidate) -> float:
    candidate, _ = timed
    return inf if candidate is None or candidate.workspace_bytes is None else candidate.workspace_bytes
