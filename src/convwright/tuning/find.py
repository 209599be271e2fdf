"""Find every way of computing a problem, measure what is worth measuring, and choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.settings import QUICK_BUDGET_US, Mode, Trust, settings
from convwright.tuning import isolation, listing
from convwright.tuning.ahead import compile_ahead, is_long
from convwright.tuning.beside import BEING_COMPILED, Beside
from convwright.tuning.budget import Budget
from convwright.tuning.candidates import measure_candidates
from convwright.tuning.checks import FEWEST_KINDS
from convwright.tuning.choose import choose, is_torch
from convwright.tuning.compilers import elsewhere
from convwright.tuning.contest import NO_HOOKS, SPENT, Hooks, Progress
from convwright.tuning.findings import Findings as Findings
from convwright.tuning.inside import known_best, searching
from convwright.tuning.lineup import Lineup
from convwright.tuning.prediction import by_promise
from convwright.tuning.search import Search, check_objective
from convwright.tuning.search import baseline_of as baseline_of
from convwright.tuning.search import resolved as resolved
from convwright.tuning.store import Store
from convwright.tuning.verify import still_holds
from convwright.tuning.warm_up import warm_up

FULL_BUDGET_US = 30e6
_CHAINS_IN_QUICK = 3
_IN_THIS_PROCESS = "was not tried: it is compiled in this process, for which only a full search has time"


def find(
    problem: ConvProblem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    store: Store,
    budget_us: float | None = None,
    trust: Trust | None = None,
    isolate: bool = False,
    energy: bool = False,
    progress: Progress | None = None,
    beside: Beside | None = None,
) -> Findings:
    """Search for the best candidate. What the store already knows is not measured again.

    In mode ``heuristic``, and for a device that is elsewhere, nothing runs: candidates come in the order of what they
    need at least and of their backends' belief in them. In mode ``full`` the problems inside rewrites are searched
    first, and rewrites are tried around their best. ``budget_us`` begins now. With ``trust`` "verify" a winner from the
    store is timed again beside PyTorch's own call, and the search done anew where it no longer holds. ``isolate`` runs
    candidates in a process of their own. ``energy`` measures that of the best; ``progress`` is told what is being done.
    In mode ``quick`` what has to be compiled is left to ``beside``, where that is given.
    """
    budget = Budget(budget_us or (QUICK_BUDGET_US if mode is Mode.QUICK else FULL_BUDGET_US))
    with budget.paused():
        listing.load(device)
    search = Search(
        problem, device, resolved(policy, problem, device), mode, store, budget,
        trust or settings().trust, isolate, energy, progress or NO_HOOKS.progress,
        beside if mode is Mode.QUICK and not isolate else None,
    )  # fmt: skip
    direct = listing.direct(problem, device, search.policy)
    candidates, refusals = listing.candidates(direct), listing.refusals(direct)
    if not search.runs:
        return _listed(search, candidates, refusals, _why_nothing_runs(search))
    too_large = _too_large(problem, device)
    if too_large is not None:
        if beside is None:
            raise BadInput(too_large)
        # A call brings its operands along, however they fit: what cannot be measured beside them is PyTorch's.
        return _listed(search, candidates, refusals, too_large)
    if search.recall().tried(mode, candidates) is None:
        return _searched(search, candidates, refusals)
    found = _remembered(search, candidates, refusals)
    if search.trust is Trust.VERIFY and found.choice is not None and not still_holds(found, budget):
        return _searched(search, candidates, refusals, afresh=True)
    return found


def _why_nothing_runs(search: Search) -> str:
    return f"nothing runs in mode {search.mode}" if search.device.present else f"{search.device.name} is elsewhere"


def _too_large(problem: ConvProblem, device: DeviceFacts) -> str | None:
    """Why operands of this problem cannot be made on a device; None where they can, or its memory is not known."""
    needed = sum(max(spec.nbytes, spec.span_bytes) for spec in (problem.x, problem.w, problem.y))
    if device.memory_bytes is None or needed <= device.memory_bytes:
        return None
    needed_gb, present_gb = needed / 1e9, device.memory_bytes / 1e9
    return f"its operands take {needed_gb:,.1f} GB, {device.name} has {present_gb:,.1f} GB of memory: {problem.key}"


def _listed(search: Search, direct: list[Candidate], refusals: list[Refusal], why: str) -> Findings:
    """All that there is, with what the store knows of it, and ``why`` nothing runs: that is the heuristic mode."""
    search = replace(search, mode=Mode.HEURISTIC)
    offers = listing.rewritten(search.problem, search.device, search.policy, partial(known_best, search))
    listed = by_promise([*direct, *listing.candidates(offers)], search.device)
    recall = search.recall()
    if search.device.present:
        listed += [candidate for candidate in recall.rewritten() if candidate not in listed]
    known, note = recall.known(listed), f"was not measured: {why}"
    rows = [known.get(candidate.id) or Finding(candidate, note=note) for candidate in listed]
    return _ranked(search, rows, [*refusals, *listing.refusals(offers)])


def _remembered(search: Search, direct: list[Candidate], refusals: list[Refusal]) -> Findings:
    """What an earlier search found out."""
    recall = search.recall()
    listed = [*direct, *recall.rewritten()]
    return _ranked(search, _rows(listed, recall.known(listed), "was not measured when this was searched"), refusals)


def _searched(
    search: Search, direct: list[Candidate], refusals: list[Refusal], *, rewrites: bool = True, afresh: bool = False
) -> Findings:
    """A new search. What is settled by earlier ones is not measured again, unless it is done afresh."""
    check_objective(search.policy, search.device, search.mode, energy=search.energy)
    if not search.isolate:
        with search.budget.paused():
            warm_up(search.device, search.store)
    most_chains = 0 if not rewrites else _CHAINS_IN_QUICK if search.mode is Mode.QUICK else None
    if search.kernels is None and is_long(search):
        search = replace(search, kernels=compile_ahead(search, direct, most_chains), budget=search.budget.part(1.0))
    recall, baseline = search.recall(rewrites=rewrites), baseline_of(direct, search.policy)
    kernels, device = search.kernels, search.device
    promising: listing.Promising = partial(known_best, search)
    if search.mode is Mode.FULL and rewrites:
        promising = searching(search, lambda inner, direct: _searched(inner, direct, [], rewrites=False))
    lineup = Lineup(
        search.problem, search.device, direct, baseline, promising, search.budget,
        most_chains=most_chains,
        is_built=lambda candidate: kernels is not None and kernels.is_built(candidate, device),
    )  # fmt: skip
    known: dict[str, Finding] = {}  # filled as candidates are taken

    def worth_measuring() -> Iterator[Candidate]:
        for candidate in lineup:
            finding = recall.finding(candidate)
            if finding is not None and not (afresh and finding.failure is None):
                known[candidate.id] = finding
                if _is_settled(finding, search):
                    continue
            if is_torch(candidate) or listing.objection(candidate, search.policy) is None:
                yield candidate

    waiting: list[Candidate] = []

    def later(candidate: Candidate) -> str | None:
        assert kernels is not None
        if not elsewhere(candidate):
            return _IN_THIS_PROCESS if search.mode is Mode.QUICK else None
        reason = kernels.reason_to_wait(candidate, device)
        if reason == BEING_COMPILED:
            waiting.append(candidate)
        return reason

    hooks = Hooks(recall.trying, search.progress, search.energy, lineup.hear, None if kernels is None else later)
    measure = isolation.measure_candidates if search.isolate else measure_candidates
    fresh = measure(
        worth_measuring(), baseline, known, search.problem, search.device, search.policy,
        mode=search.mode, budget=search.budget, hooks=hooks,
    )  # fmt: skip
    recall.record(fresh)
    if not waiting:  # or else the search is not done yet
        recall.record_search(search.mode, lineup.listed)
    known |= {f.candidate.id: f for f in fresh if f.candidate.id not in known or _is_checked(f)}
    rows = _rows(lineup.listed, known, SPENT)
    return _ranked(search, rows, [*refusals, *lineup.refusals])


def _rows(listed: list[Candidate], known: Mapping[str, Finding], note: str) -> list[Finding]:
    """One for each candidate, in an order that does not depend on how it came to be listed."""
    ordered = sorted(listed, key=lambda candidate: candidate.id if candidate.inner is not None else "")
    return [known.get(candidate.id) or Finding(candidate, note=note) for candidate in ordered]


def _ranked(search: Search, rows: list[Finding], refusals: list[Refusal]) -> Findings:
    own = baseline_of([row.candidate for row in rows], search.policy)
    baseline = next((row for row in rows if own is not None and row.candidate == own), None)
    verdicts = choose(rows, baseline, search.policy)
    return Findings(search.problem, search.device, search.policy, search.mode, verdicts, tuple(refusals), baseline)


def _is_checked(finding: Finding) -> bool:
    """True where a candidate failed, or was timed and its error looked at on as many kinds of data as are needed."""
    measured = finding.measurement
    return finding.failure is not None or (measured is not None and len(measured.errors) >= FEWEST_KINDS)


def _is_settled(finding: Finding, search: Search) -> bool:
    """True where nothing more need be found out: what a quick search timed, a full one times again, and who is to have
    its energy measured has to be among the best first."""
    measured = finding.measurement
    if measured is None:
        return _is_checked(finding)
    if search.wants_energy and measured.energy_mj is None:
        return False
    thorough = dict(measured.conditions).get("mode") == Mode.FULL
    return _is_checked(finding) and (thorough or search.mode is not Mode.FULL)
