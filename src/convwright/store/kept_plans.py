"""Where texts of plans that are slow to build are kept, and those of one engine in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

# The key of a text: a problem's key, a device's key, a candidate's id, its fingerprint.
Place = tuple[str, str, str, str]


class KeepsPlans(Protocol):
    """A place that keeps texts of plans, such as the store."""

    def keep_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str, body: str) -> None: ...

    def kept_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> str | None: ...


class KeptPlans:
    """Texts of plans in memory, separate from the store: those of one engine."""

    def __init__(self, texts: Mapping[Place, str]) -> None:
        self.texts = dict(texts)

    def keep_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str, body: str) -> None:
        self.texts[problem_key, device_key, candidate_id, fingerprint] = body

    def kept_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> str | None:
        return self.texts.get((problem_key, device_key, candidate_id, fingerprint))
