"""Build a candidate, faster if its compiled kernel is stored: by an earlier process, or beside a saved engine."""

from __future__ import annotations

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan, Writable
from convwright.errors import BackendError
from convwright.rewrites.rewrite import wrap_plan
from convwright.store.kept_plans import KeepsPlans, Place
from convwright.tuning import listing


def place_of(leaf: Candidate, device: DeviceFacts) -> Place:
    """The storage key of a candidate that is not a rewrite."""
    return leaf.problem.key, device.key, leaf.id, listing.fingerprint(leaf, device)


def stored_plan(candidate: Candidate, device: DeviceFacts, kept: KeepsPlans) -> Plan:
    """The plan of a candidate, with its rewrites. Kernels that are slow to build are stored for the next process."""
    return wrap_plan(candidate, lambda leaf: _leaf(leaf, device, kept))


def _leaf(leaf: Candidate, device: DeviceFacts, kept: KeepsPlans) -> Plan:
    member = listing.member_of(leaf)
    if not leaf.compiles or not isinstance(member, Writable):
        return member.build(leaf, device)
    place = place_of(leaf, device)
    text = kept.kept_plan(*place)
    if text is not None:
        try:
            return member.read(leaf, device, text)
        except BackendError:
            pass  # an unreadable text is built again, and replaced
    built = member.build(leaf, device)
    text = member.written(built)
    if text is not None:
        kept.keep_plan(*place, text)
    return built
