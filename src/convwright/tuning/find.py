"""Find every way of computing a problem, measure what is worth measuring, and choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from convwright import flags
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.policy import DEFAULT_WORKSPACE_BYTES, Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.energy import counter_of
from convwright.measuring.machine import free_memory_bytes
from convwright.rewrites import REWRITES
from convwright.settings import QUICK_BUDGET_US, Mode, Trust, settings
from convwright.tuning import isolation, listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import choose, is_torch
from convwright.tuning.contest import NO_HOOKS, Hooks, Progress, measure_candidates
from convwright.tuning.findings import Findings as Findings
from convwright.tuning.lineup import Lineup
from convwright.tuning.prediction import by_promise
from convwright.tuning.recall import Recall
from convwright.tuning.store import Store
from convwright.tuning.verify import still_holds
from convwright.tuning.warm_up import warm_up

FULL_BUDGET_US = 30e6
_INNER_SHARE = 0.3
_MOST_WRAPPED = 2


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked for, under which permission, and how it is to be found out."""

    problem: ConvProblem
    device: DeviceFacts
    policy: Policy
    mode: Mode
    store: Store
    budget: Budget
    trust: Trust = Trust.TRUST
    isolate: bool = False
    energy: bool = False
    progress: Progress = NO_HOOKS.progress

    @property
    def runs(self) -> bool:
        """False where nothing is run whatever is not known."""
        return self.mode in (Mode.QUICK, Mode.FULL) and self.device.present

    def recall(self, *, rewrites: bool = True) -> Recall:
        scope = ",".join(rewrite.name for rewrite in REWRITES) if rewrites else "direct"
        return Recall(self.problem, self.device, self.policy, self.store, scope)


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
) -> Findings:
    """Search for the best candidate. What the store already knows is not measured again.

    In mode ``heuristic``, and for a device that is elsewhere, nothing runs: candidates come in the order of what they
    need at least and of their backends' belief in them. In mode ``full`` the problems inside rewrites are searched
    first, and rewrites are tried around their best. ``budget_us`` begins now. With ``trust`` "verify" a winner from the
    store is timed again beside PyTorch's own call, and the search done anew where it no longer holds. ``isolate`` runs
    candidates in a process of their own. ``energy`` measures that of the best; ``progress`` is told what is being done.
    """
    budget = Budget(budget_us or (QUICK_BUDGET_US if mode is Mode.QUICK else FULL_BUDGET_US))
    with budget.paused():
        listing.load(device)
    search = Search(
        problem, device, resolved(policy, problem, device), mode, store, budget,
        trust or settings().trust, isolate, energy, progress or NO_HOOKS.progress,
    )  # fmt: skip
    direct = listing.direct(problem, device, search.policy)
    candidates, refusals = listing.candidates(direct), listing.refusals(direct)
    if not search.runs:
        return _listed(search, candidates, refusals)
    if search.recall().tried(mode, candidates) is None:
        return _searched(search, candidates, refusals)
    found = _remembered(search, candidates, refusals)
    if search.trust is Trust.VERIFY and found.choice is not None and not still_holds(found, budget):
        return _searched(search, candidates, refusals, afresh=True)
    return found


def _listed(search: Search, direct: list[Candidate], refusals: list[Refusal]) -> Findings:
    """All that there is, with what the store knows of it; nothing runs."""
    offers = listing.rewritten(search.problem, search.device, search.policy, lambda inner: _known_best(search, inner))
    listed = by_promise([*direct, *listing.candidates(offers)], search.device)
    recall, why = search.recall(), f"{search.device.name} is elsewhere"
    if search.device.present:
        why = f"nothing runs in mode {search.mode}"
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
    recall, baseline = search.recall(rewrites=rewrites), baseline_of(direct, search.policy)
    promising: listing.Promising = lambda inner: _known_best(search, inner)  # noqa: E731
    if search.mode is Mode.FULL and rewrites:
        promising = _searching(search)
    lineup = Lineup(
        search.problem, search.device, search.policy, direct, baseline, promising, search.budget,
        chains=0 if not rewrites else 3 if search.mode is Mode.QUICK else None,
    )  # fmt: skip
    known: dict[str, Finding] = {}

    def worth_measuring() -> Iterator[Candidate]:
        for candidate in lineup:
            finding = recall.finding(candidate)
            if finding is not None and not (afresh and finding.failure is None):
                known[candidate.id] = finding
                if _is_settled(finding, search.mode):
                    continue
            if is_torch(candidate) or listing.objection(candidate, search.policy) is None:
                yield candidate

    hooks = Hooks(recall.trying, search.progress, search.energy)
    measure = isolation.measure_candidates if search.isolate else measure_candidates
    fresh = measure(
        worth_measuring(), baseline, known, search.problem, search.device, search.policy,
        mode=search.mode, budget=search.budget, hooks=hooks,
    )  # fmt: skip
    recall.record(fresh)
    recall.record_search(search.mode, lineup.listed)
    known |= {f.candidate.id: f for f in fresh if f.candidate.id not in known or _is_checked(f)}
    rows = _rows(lineup.listed, known, "was not tried: the budget was spent")
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


def _searching(search: Search) -> listing.Promising:
    """Searches a problem inside a rewrite, each for its share of the time, and names its best."""
    problems = max(len(listing.inner_problems(search.problem, search.device)), 1)
    share_us = search.budget.total_us * _INNER_SHARE / problems

    def promising(problem: ConvProblem) -> list[Candidate]:
        offers = listing.direct(problem, search.device, search.policy)
        inner = replace(search, problem=problem, mode=Mode.QUICK, budget=Budget(share_us), energy=False)
        inner = replace(inner, policy=_by_time(search.policy))
        direct = listing.candidates(offers)
        late = not search.budget.has(1 - _INNER_SHARE)
        if not late and inner.recall(rewrites=False).tried(Mode.QUICK, direct) is None:
            _searched(inner, direct, [], rewrites=False)
        return _known_best(search, problem)

    return promising


def _known_best(search: Search, problem: ConvProblem) -> list[Candidate]:
    """The few candidates for the problem inside a rewrite that are worth wrapping: the fastest that were measured and
    not found wrong, or the first of each backend where none was."""
    listed = listing.candidates(listing.direct(problem, search.device, search.policy))
    known = Recall(problem, search.device, search.policy, search.store, "direct").known(listed)
    own = baseline_of(listed, search.policy)
    base = known.get(own.id) if own is not None else None
    verdicts = choose(list(known.values()), base, _by_time(search.policy))
    best = [v.finding.candidate for v in verdicts if v.allowed]
    best += [
        v.finding.candidate
        for v in verdicts
        if v.finding.measurement is not None and not v.finding.measurement.errors and not v.allowed
        and listing.objection(v.finding.candidate, search.policy) is None
    ]  # fmt: skip
    return best[:_MOST_WRAPPED] or listing.first_of_each(listed, search.policy)


def _by_time(policy: Policy) -> Policy:
    return replace(policy, objective=Objective.TIME) if policy.objective is Objective.ENERGY else policy


def _is_checked(finding: Finding) -> bool:
    """True where a candidate failed, or was timed and its error looked at."""
    return finding.failure is not None or bool(finding.measurement and finding.measurement.errors)


def _is_settled(finding: Finding, mode: Mode) -> bool:
    """True where nothing more need be found out: what a quick search timed, a full one times again."""
    measured = finding.measurement
    thorough = measured is None or dict(measured.conditions).get("mode") == Mode.FULL
    return _is_checked(finding) and (thorough or mode is not Mode.FULL)


def check_objective(policy: Policy, device: DeviceFacts, mode: Mode, *, energy: bool) -> None:
    """Energy takes seconds to be measured, and a counter."""
    if not energy and policy.objective is not Objective.ENERGY:
        return
    if mode is not Mode.FULL:
        raise BadInput(f"energy is measured in mode full only, since it takes seconds a candidate, got mode {mode}")
    if counter_of(str(device.torch_name)).read_mj() is None:
        raise BadInput(f"energy cannot be measured here: {device.name} has no counter that this process may read")


def resolved(policy: Policy, problem: ConvProblem, device: DeviceFacts) -> Policy:
    """``policy`` with PyTorch's permission and the default workspace filled in."""
    workspace = policy.max_workspace_bytes
    if workspace is None:
        free = free_memory_bytes(device)
        workspace = min(DEFAULT_WORKSPACE_BYTES, free // 10) if free is not None else DEFAULT_WORKSPACE_BYTES
    return flags.resolved(replace(policy, max_workspace_bytes=workspace), problem.dtype, device)


def baseline_of(listed: Sequence[Candidate], policy: Policy) -> Candidate | None:
    """PyTorch's own call as its flags make it."""
    own = [candidate for candidate in listed if is_torch(candidate) and candidate.inner is None]
    return next((c for c in own if policy.arithmetic is None or c.arithmetic in policy.arithmetic), None)
