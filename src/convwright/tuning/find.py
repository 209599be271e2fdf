"""Find every way of computing a problem, measure what is worth measuring, and choose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from convwright import flags
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Measurement
from convwright.core.limits import limits
from convwright.core.policy import DEFAULT_WORKSPACE_BYTES, Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.machine import free_memory_bytes
from convwright.settings import QUICK_BUDGET_US, Mode
from convwright.tuning import listing
from convwright.tuning.choose import Verdict, choose, is_torch
from convwright.tuning.contest import measure_candidates
from convwright.tuning.store import Store

FULL_BUDGET_US = 30e6
_INNER_SHARE = 0.4
_MOST_WRAPPED = 2


@dataclass(frozen=True, slots=True, repr=False)
class Findings:
    """All that is known of one problem on one device: rows ranked with reasons, and refusals."""

    problem: ConvProblem
    device: DeviceFacts
    policy: Policy
    mode: Mode
    verdicts: tuple[Verdict, ...]
    refusals: tuple[Refusal, ...]
    baseline: Finding | None

    @property
    def choice(self) -> Finding | None:
        """The winner; None where nothing is allowed, or nothing was measured and the device is elsewhere."""
        return next((verdict.finding for verdict in self.verdicts if verdict.won), None)

    def __repr__(self) -> str:
        won = self.choice.candidate.id if self.choice else "nothing"
        return f"<Findings: {self.problem.key} on {self.device.key}: {won} of {len(self.verdicts)} candidates>"

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "problem": self.problem.key,
            "device": self.device.key,
            "mode": self.mode,
            "choice": self.choice.candidate.id if self.choice else None,
            "baseline": self.baseline.candidate.id if self.baseline else None,
            "candidates": [_row(verdict, self.device) for verdict in self.verdicts],
            "refusals": [{"id": refusal.id, "reason": refusal.reason} for refusal in self.refusals],
        }


def find(
    problem: ConvProblem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    store: Store,
    budget_us: float | None = None,
) -> Findings:
    """Search for the best candidate. What the store already knows is not measured again.

    In mode ``heuristic``, and for a device that is elsewhere, nothing runs: candidates come in the order in which
    their backends believe in them. In mode ``full`` the problems inside rewrites are searched first, and rewrites
    are tried around their best.
    """
    policy = resolved(policy, problem, device)
    budget = budget_us or (QUICK_BUDGET_US if mode is Mode.QUICK else FULL_BUDGET_US)
    direct = listing.direct(problem, device, policy)
    promising = None
    if mode is Mode.FULL and device.present:
        inner = listing.inner_problems(problem, device)
        share = budget * _INNER_SHARE / max(len(inner), 1)
        budget *= 1 - _INNER_SHARE

        def promising(inner: ConvProblem) -> list[Candidate]:
            offers = listing.direct(inner, device, policy)
            return _best(_search(inner, device, policy, offers, mode=mode, store=store, budget_us=share))

    offers = [*direct, *listing.rewritten(problem, device, policy, promising)]
    return _search(problem, device, policy, offers, mode=mode, store=store, budget_us=budget)


def _search(
    problem: ConvProblem,
    device: DeviceFacts,
    policy: Policy,
    offers: list[Offer],
    *,
    mode: Mode,
    store: Store,
    budget_us: float,
) -> Findings:
    listed, refusals = listing.candidates(offers), tuple(listing.refusals(offers))
    base = baseline_of(listed, policy)
    known = _remembered(problem, device, listed, store)
    runs = mode in (Mode.QUICK, Mode.FULL) and device.present
    if runs and not _searched(problem, device, policy, mode, store, listed):
        settled = {name for name, finding in known.items() if _is_settled(finding, mode)}
        worth = [c for c in listing.spread(listed) if _worth_measuring(c, policy) and c.id not in settled]
        fresh = measure_candidates(worth, base, known, problem, device, policy, mode=mode, budget_us=budget_us)
        _record(fresh, problem, device, store)
        store.record_search(problem.key, device.key, _scope(policy, mode), [_stamp(c, device) for c in listed])
        known |= {f.candidate.id: f for f in fresh if f.candidate.id not in known or _is_checked(f)}
    where = f"nothing runs in mode {mode}" if device.present else f"{device.name} is elsewhere"
    note = None if runs else f"was not measured: {where}"
    rows = [known.get(candidate.id, Finding(candidate, note=note)) for candidate in listed]
    baseline = next((row for row in rows if base is not None and row.candidate == base), None)
    return Findings(problem, device, policy, mode, choose(rows, baseline, policy), refusals, baseline)


def _is_checked(finding: Finding) -> bool:
    """True where a candidate failed, or was timed and its error looked at."""
    return finding.failure is not None or bool(finding.measurement and finding.measurement.errors)


def _is_settled(finding: Finding, mode: Mode) -> bool:
    """True where nothing more need be found out: what a quick search timed, a full one times again."""
    measured = finding.measurement
    thorough = measured is None or dict(measured.conditions).get("mode") == Mode.FULL
    return _is_checked(finding) and (thorough or mode is not Mode.FULL)


def _best(found: Findings) -> list[Candidate]:
    """The few candidates that are worth a rewrite around them: measured, and allowed."""
    ranked = [v.finding.candidate for v in found.verdicts if v.eager_us is not None and v.allowed]
    return ranked[:_MOST_WRAPPED]


def _record(fresh: Iterable[Finding], problem: ConvProblem, device: DeviceFacts, store: Store) -> None:
    for finding in fresh:
        if finding.measurement is not None or finding.failure is not None:
            print_ = listing.fingerprint(finding.candidate, device)
            name = finding.candidate.id
            store.record(problem.key, device.key, name, print_, finding.measurement, finding.failure)


def resolved(policy: Policy, problem: ConvProblem, device: DeviceFacts) -> Policy:
    """``policy`` with PyTorch's permission and the default workspace filled in."""
    workspace = policy.max_workspace_bytes
    if workspace is None:
        free = free_memory_bytes(device)
        workspace = min(DEFAULT_WORKSPACE_BYTES, free // 10) if free is not None else DEFAULT_WORKSPACE_BYTES
    return flags.resolved(replace(policy, max_workspace_bytes=workspace), problem.dtype, device)


def baseline_of(listed: list[Candidate], policy: Policy) -> Candidate | None:
    """PyTorch's own call as its flags make it."""
    own = [candidate for candidate in listed if is_torch(candidate) and candidate.inner is None]
    return next((c for c in own if policy.arithmetic is None or c.arithmetic in policy.arithmetic), None)


def _remembered(problem: ConvProblem, device: DeviceFacts, listed: list[Candidate], store: Store) -> dict[str, Finding]:
    stored = store.findings(problem.key, device.key)
    prints = {c.leaf.backend: listing.fingerprint(c, device) for c in listed}
    return {
        candidate.id: Finding(candidate, entry.measurement, entry.failure, remembered=True)
        for candidate in listed
        if (entry := stored.get(candidate.id)) is not None and entry.fingerprint == prints[candidate.leaf.backend]
    }


def _searched(
    problem: ConvProblem, device: DeviceFacts, policy: Policy, mode: Mode, store: Store, listed: list[Candidate]
) -> bool:
    """True where an earlier search under the same permission was at least as thorough and tried all that is listed."""
    thorough = (Mode.FULL,) if mode is Mode.FULL else (Mode.QUICK, Mode.FULL)
    tried = [store.search(problem.key, device.key, _scope(policy, m)) for m in thorough]
    return any(ids is not None and {_stamp(c, device) for c in listed} <= set(ids) for ids in tried)


def _stamp(candidate: Candidate, device: DeviceFacts) -> str:
    """A candidate as it was when it was tried."""
    return f"{candidate.id} ({listing.fingerprint(candidate, device)})"


def _scope(policy: Policy, mode: Mode) -> str:
    # Free memory changes from minute to minute; a search does not become a new one with it.
    workspace = f"2^{(policy.max_workspace_bytes or 0).bit_length()}"
    return f"{mode} {replace(policy, max_workspace_bytes=None, arithmetic=None)} {workspace} {_words(policy)}"


def _words(policy: Policy) -> str:
    return ",".join(sorted(policy.arithmetic or ()))


def _worth_measuring(candidate: Candidate, policy: Policy) -> bool:
    """What policy forbids is listed but not run; PyTorch's other TF32 setting is, as the second baseline."""
    return is_torch(candidate) or listing.objection(candidate, policy) is None


def _row(verdict: Verdict, device: DeviceFacts) -> dict[str, Any]:
    candidate, measurement = verdict.finding.candidate, verdict.finding.measurement
    bound = limits(candidate, device)
    return {
        "id": candidate.id,
        "arithmetic": candidate.arithmetic,
        "workspace_bytes": _workspace(candidate, measurement),
        "deterministic": candidate.deterministic,
        "source": candidate.source,
        "bytes_limit_us": bound.bytes_us,
        "arithmetic_limit_us": bound.arithmetic_us,
        "eager_us": verdict.eager_us,
        "remembered": verdict.finding.remembered,
        "reason": verdict.reason,
        "measurement": measurement.to_json() if measurement else None,
    }


def _workspace(candidate: Candidate, measurement: Measurement | None) -> int | None:
    return measurement.workspace_bytes if measurement else candidate.workspace_bytes
