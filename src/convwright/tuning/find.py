"""Find every way to compute a problem, measure the promising ones, and choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

import torch

from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.kinds.problem import Problem
from convwright.core.limits import too_large
from convwright.core.policy import Objective, Policy
from convwright.core.predictor import Predictor
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import as_current
from convwright.settings import BUDGETS_US, Mode, Trust, settings
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.by_ratios import by_ratios
from convwright.tuning.choose import Verdict, choose, is_torch
from convwright.tuning.findings import Findings as Findings
from convwright.tuning.inner_problems import known_best, searching
from convwright.tuning.kernels import begun_early, compiling
from convwright.tuning.predicted_search import by_prediction, promising
from convwright.tuning.run import Run
from convwright.tuning.search import Search, check_objective, search_for
from convwright.tuning.search import baseline_of as baseline_of
from convwright.tuning.search import resolved as resolved
from convwright.tuning.trials.effort import EFFORTS
from convwright.tuning.trials.search_input import NO_HOOKS, SPENT, Progress
from convwright.tuning.trials.verify import still_holds
from convwright.tuning.trials.warm_up import warm_up

NOT_MEASURED = "was not measured: "
# The most time of a quick search on a CPU, where a call may take as long as the whole search on a GPU.
_LONG_CALLS_US = 3e6


def find(
    problem: Problem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    store: Store,
    budget_us: float | None = None,
    trust: Trust | None = None,
    isolate: bool = False,
    energy: bool = False,
    tolerate_load: bool = False,
    progress: Progress | None = None,
    predictor: Predictor | None = None,
    then: Callable[[], None] | None = None,
) -> Findings:
    """Search for the best candidate. Results in the store are not measured again.

    ``mode`` says what runs:

    * "predict": nothing. The choice follows from the times that a model of the device predicts.
    * "heuristic", and any other mode for a device not in this machine: nothing. Candidates are sorted by the least time
      that they need and their backends' own ranking.
    * "predict-top": PyTorch's own call, and up to three candidates that may be fastest by their predicted intervals.
    * "quick": the most promising candidates within a small budget.
    * "full": also candidates of the problems inside rewrites, and rewrites around the best of them.

    ``budget_us`` starts now. Without it a quick search on a CPU takes more time for long calls. With ``trust="verify"``
    a winner from the store is timed again beside PyTorch's own call, and the search is repeated if it no longer holds.
    ``isolate`` runs candidates in another process. ``energy`` measures the energy of the best. ``tolerate_load``
    compares candidates by ratios of rounds where other work makes their times unstable; such times are not stored.
    ``progress`` receives the current activity. ``predictor`` gives the order in which kernels are compiled and
    candidates are timed; by default it is estimates corrected by the store's findings.

    A search inside a call passes ``then`` and does not wait for compilers. ``then`` is called in another thread when
    the kernels that the search lacked have been compiled.
    """
    stretches = budget_us is None and mode is Mode.QUICK and device.kind == "cpu"
    budget = Budget(budget_us or BUDGETS_US.get(mode, 0.0), most_us=_LONG_CALLS_US if stretches else 0.0)
    with budget.paused():
        search = replace(
            search_for(problem, device, policy, mode, store, budget), trust=trust or settings().trust, isolate=isolate,
            energy=energy, tolerate_load=tolerate_load, progress=progress or NO_HOOKS.progress, predictor=predictor,
        )  # fmt: skip
    if then is not None or not search.runs or search.recall().is_settled(mode):
        return _found(search, then)
    with begun_early(search):
        return _found(search, then)


def _found(search: Search, then: Callable[[], None] | None) -> Findings:
    problem, device, budget = search.problem, search.device, search.budget
    if search.mode is Mode.PREDICT or (search.mode is Mode.PREDICT_TOP and not device.present):
        with budget.paused():
            return by_prediction(search)
    with budget.paused():  # listing takes up to 100 ms (H200)
        listing.load(device)
        direct = search.offers(problem)
    candidates, refusals = listing.candidates(direct), listing.refusals(direct)
    if not search.runs:
        why = f"nothing runs in mode {search.mode}" if device.present else f"{device.name} is not in this machine"
        return _listed(search, candidates, refusals, why)
    if reason := too_large(problem, device):
        why = f"{reason}: {problem.key}"
        if then is None:
            raise BadInput(why)
        # A call's operands may leave no room for a measurement; then PyTorch serves it.
        return _listed(search, candidates, refusals, why)
    # The caller's autocast would cast the measured operands.
    with torch.autocast(device.kind, enabled=False), as_current(device):
        return _measured(search, candidates, refusals, then)


def _measured(
    search: Search, candidates: list[Candidate], refusals: list[Refusal], then: Callable[[], None] | None
) -> Findings:
    """The result of an earlier search, or of a new one."""
    recall = search.recall()
    by_model = search.mode is Mode.PREDICT_TOP
    if recall.tried(search.mode, () if by_model else candidates) is None:
        candidates = promising(search, candidates) if by_model else candidates
        return _searched(search, candidates, refusals, then, afresh=recall.was_hurried(search.mode))
    found = _remembered(search, candidates, refusals)
    if search.trust is Trust.VERIFY and found.choice is not None and not still_holds(found, search.budget):
        return _searched(search, candidates, refusals, then, afresh=True)
    return found


def _listed(search: Search, direct: list[Candidate], refusals: list[Refusal], why: str) -> Findings:
    """All candidates with the store's findings, and ``why`` nothing runs: the heuristic mode."""
    search = replace(search, mode=Mode.HEURISTIC)
    offers = listing.rewritten(search.problem, search.device, search.policy, partial(known_best, search))
    allowed, others = list[Candidate](), list[Candidate]()
    for candidate in [*direct, *listing.candidates(offers)]:
        (allowed if listing.objection(candidate, search.policy) is None else others).append(candidate)
    listed = [*_ordered(search, allowed), *_ordered(search, others)]
    recall = search.recall()
    if search.device.present:
        listed += recall.beyond(listed)
    known, note = recall.known(listed), f"{NOT_MEASURED}{why}"
    rows = [known.get(candidate.id) or Finding(candidate, note=note) for candidate in listed]
    return _ranked(search, rows, [*refusals, *listing.refusals(offers)])


def _ordered(search: Search, listed: list[Candidate]) -> list[Candidate]:
    """Most promising first; least workspace first if the policy minimises workspace."""
    promising = search.ranked(listed)
    if search.policy.objective is not Objective.WORKSPACE:
        return promising
    return sorted(promising, key=lambda each: inf if each.workspace_bytes is None else each.workspace_bytes)


def _remembered(search: Search, direct: list[Candidate], refusals: list[Refusal]) -> Findings:
    """The result of an earlier search."""
    recall = search.recall()
    listed = [*direct, *recall.beyond(direct)]
    known = recall.known(listed)
    others = [each for each in known.values() if each.measurement is not None and not is_torch(each.candidate)]
    cure = "" if others else ": give a larger budget"
    return _ranked(search, _rows(listed, known, f"was not measured when this was searched{cure}"), refusals)


def _searched(
    search: Search,
    direct: list[Candidate],
    refusals: list[Refusal],
    then: Callable[[], None] | None,
    *,
    afresh: bool,
) -> Findings:
    """A new search. Candidates settled by earlier searches are not measured again, unless ``afresh``."""
    check_objective(search.policy, search.device, search.mode, energy=search.energy)
    if not search.isolate:
        with search.budget.paused():
            warm_up(search.device, search.store)
    most_chains = EFFORTS[search.mode].chains
    with compiling(search, direct, most_chains, afresh=afresh, then=then) as kernels:
        search = replace(search, kernels=kernels)
        looks = search.mode is Mode.FULL and not search.isolate
        promising = searching(search) if looks else partial(known_best, search)
        run = Run(search, direct, promising, rewrites=True, most_chains=most_chains, afresh=afresh)
        known = run.measure()
    return _ranked(search, _rows(run.lineup.listed, known, SPENT), [*refusals, *run.lineup.refusals])


def _rows(listed: list[Candidate], known: Mapping[str, Finding], note: str) -> list[Finding]:
    """One row per candidate, in an order that does not depend on how it came to be listed."""
    ordered = sorted(listed, key=lambda candidate: candidate.id if candidate.inner is not None else "")
    return [known.get(candidate.id) or Finding(candidate, note=note) for candidate in ordered]


def _ranked(search: Search, rows: list[Finding], refusals: list[Refusal]) -> Findings:
    own = baseline_of([row.candidate for row in rows], search.policy)
    baseline = next((row for row in rows if own is not None and row.candidate == own), None)
    verdicts = _by_ratios(search, rows, baseline) if search.tolerate_load else choose(rows, baseline, search.policy)
    return Findings(
        search.problem, search.device, search.policy, search.mode, verdicts, tuple(refusals), baseline,
        tolerates_load=search.tolerate_load,
    )  # fmt: skip


def _by_ratios(search: Search, rows: list[Finding], baseline: Finding | None) -> tuple[Verdict, ...]:
    """The verdicts by ratios where times are unstable. They hold the findings as they were measured."""
    compared = by_ratios(rows, baseline, search.policy)
    own = None if baseline is None else next(each for each in compared if each.candidate == baseline.candidate)
    measured = {row.candidate.id: row for row in rows}
    verdicts = choose(compared, own, search.policy)
    return tuple(replace(each, finding=measured[each.finding.candidate.id]) for each in verdicts)
