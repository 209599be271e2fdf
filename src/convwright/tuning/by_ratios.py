"""Findings of a machine under load, as they can be compared: by ratios of rounds, where times are unstable. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from convwright.core.finding import Finding, Interval
from convwright.core.policy import Policy, Weights
from convwright.tuning.choose import call_us

_NOT_PAIRED = "AMBIGUOUS: it was not timed in one run with PyTorch's own call, whose time is unstable now"


def by_ratios(findings: Iterable[Finding], own: Finding | None, policy: Policy) -> list[Finding]:
    """The findings with every unstable time replaced by the time of PyTorch's own call ``own`` multiplied by their
    ratio, whose interval it gets: other work that slows both cancels. If the time of ``own`` itself is unstable, all
    others are replaced, and those without a ratio to it are in doubt.

    >>> from convwright.tuning.by_ratios import by_ratios
    >>> by_ratios([], None, Policy())
    []
    """
    if own is None or own.measurement is None:
        return list(findings)
    base_us, shaken = call_us(own, policy), own.unstable is not None
    if shaken:
        base_us = Interval(base_us.value, base_us.value, base_us.value)
    return [_compared(each, own, base_us, policy, shaken=shaken) for each in findings]


def _compared(finding: Finding, own: Finding, base_us: Interval, policy: Policy, *, shaken: bool) -> Finding:
    measured = finding.measurement
    if measured is None or not (shaken or measured.unstable):
        return finding
    doubt = None if measured.unstable else measured.doubt
    if finding.candidate == own.candidate:
        return replace(finding, measurement=replace(measured, device_us=base_us, prepare_us=None, doubt=doubt))
    if measured.paired is None or measured.paired.own != own.candidate.id:
        return replace(finding, measurement=replace(measured, doubt=measured.doubt or _NOT_PAIRED))
    ratio = measured.paired.of_call(weights_change=policy.weights is Weights.CHANGING)
    return replace(finding, measurement=replace(measured, device_us=base_us.times(ratio), prepare_us=None, doubt=doubt))
