"""A candidate made ready, sooner where it is kept as its backend writes it down: in the store by an earlier process, or
beside a saved engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan, Writable
from convwright.errors import BackendError
from convwright.rewrites.rewrite import wrap_plan
from convwright.tuning import listing

# Under what a text is kept: the key of a problem, the key of a device, a candidate's id, its fingerprint.
Place = tuple[str, str, str, str]


class KeepsPlans(Protocol):
    """Where texts of plans are kept, such as the store."""

    def keep_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str, body: str) -> None: ...

    def kept_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> str | None: ...


class KeptPlans:
    """Texts of plans in memory, apart from the store: those of one engine."""

    def __init__(self, texts: Mapping[Place, str]) -> None:
        self.texts = dict(texts)

    def keep_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str, body: str) -> None:
        self.texts[problem_key, device_key, candidate_id, fingerprint] = body

    def kept_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> str | None:
        return self.texts.get((problem_key, device_key, candidate_id, fingerprint))


def place_of(leaf: Candidate, device: DeviceFacts) -> Place:
    """Where the text of a candidate is kept, which is no rewrite."""
    return leaf.problem.key, device.key, leaf.id, listing.fingerprint(leaf, device)


def stored_plan(candidate: Candidate, device: DeviceFacts, kept: KeepsPlans) -> Plan:
    """The plan of a candidate, rewritten or not; what takes long to build is kept for the next process."""
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
            pass  # what cannot be read is built, and kept instead
    built = member.build(leaf, device)
    text = member.written(built)
    if text is not None:
        kept.keep_plan(*place, text)
    return built
