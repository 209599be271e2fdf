"""Texts of plans, which take long to build: where they are kept, and those of one engine in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

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
