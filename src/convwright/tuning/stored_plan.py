"""A candidate made ready, sooner where an earlier process has left it in the store as its backend writes it down."""

from __future__ import annotations

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan, Writable
from convwright.errors import BackendError
from convwright.rewrites.rewrite import wrap_plan
from convwright.store.store import Store
from convwright.tuning import listing


def stored_plan(candidate: Candidate, device: DeviceFacts, store: Store) -> Plan:
    """The plan of a candidate, rewritten or not; what takes long to build is kept for the next process."""
    return wrap_plan(candidate, lambda leaf: _leaf(leaf, device, store))


def _leaf(leaf: Candidate, device: DeviceFacts, store: Store) -> Plan:
    member = listing.member_of(leaf)
    if not leaf.compiles or not isinstance(member, Writable):
        return member.build(leaf, device)
    place = leaf.problem.key, device.key, leaf.id, listing.fingerprint(leaf, device)
    text = store.kept_plan(*place)
    if text is not None:
        try:
            return member.read(leaf, device, text)
        except BackendError:
            pass  # what cannot be read is built, and kept instead
    built = member.build(leaf, device)
    text = member.written(built)
    if text is not None:
        store.keep_plan(*place, text)
    return built
