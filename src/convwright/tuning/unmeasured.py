"""Choose when a search could measure nothing that may be chosen: PyTorch's own call, else the first candidate found to
be right."""

from __future__ import annotations

from math import inf

import torch

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding
from convwright.core.once import once
from convwright.errors import Refused
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.findings import Findings
from convwright.tuning.trials.checks import Checks
from convwright.tuning.trials.quick_timing import FAILURES, failure
from convwright.tuning.trials.search_input import SEED
from convwright.tuning.trials.trial import Bench, Trial


def unmeasured(found: Findings, own: Candidate | None) -> Candidate:
    """``own``, PyTorch's call, if the policy allows it; else the first candidate that it allows and that is right."""
    if own is None:
        why = next((f"{refusal.id}: {refusal.reason}" for refusal in found.refusals[-1:]), "there is nothing")
    else:
        reason = listing.objection(own, found.policy)
        if reason is None:
            return own
        why = f"{own.id} {reason}"
    check = _Check(found)
    for at, verdict in enumerate(found.verdicts):
        reason = _known(verdict.finding, found) or check.objection(verdict.finding.candidate)
        if reason is None:
            return verdict.finding.candidate
        if own is None and at == 0:
            why = f"{verdict.finding.candidate.id} {reason}"
    raise Refused(f"nothing that computes {found.problem.key} is allowed: {why}")


def _known(finding: Finding, found: Findings) -> str | None:
    """The objection to a candidate, known without running it."""
    reason = finding.failure or listing.objection(finding.candidate, found.policy)
    if reason is not None or finding.measurement is None:
        return reason
    own = None if found.baseline is None else found.baseline.measurement
    return objection_to_errors(
        finding.candidate, finding.measurement.errors, None if own is None else own.errors, found.policy
    )


class _Check:
    """Checks candidates for correctness, on operands made at the first check."""

    def __init__(self, found: Findings) -> None:
        self._found = found

    def objection(self, candidate: Candidate) -> str | None:
        """What is wrong with a candidate; None if it is right, or if nothing can run to find out."""
        if not self._found.device.present:
            return None
        with torch.autocast(self._found.device.kind, enabled=False):  # autocast would cast the operands
            return self._run(candidate)

    def _run(self, candidate: Candidate) -> str | None:
        try:
            bench, check = self._ready
        except SHORTAGES as error:
            if not is_shortage(error):
                raise
            return None
        try:
            errors = check.check(Trial(candidate, bench), Budget(inf)).errors
        except FAILURES as error:
            broken = failure(candidate, error, bench.device)
            return broken.failure or broken.note
        return objection_to_errors(candidate, errors, None, self._found.policy)

    @once
    def _ready(self) -> tuple[Bench, Checks]:
        found = self._found
        bench = Bench(found.problem, found.device, found.mode, seed=SEED)
        return bench, Checks(bench, found.policy, seed=SEED)
