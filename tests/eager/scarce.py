"""Memory that runs out when a test says so, and what is known of candidates that may serve instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning import session as sessions
from convwright.tuning.session import Choice, Session
from eager.prefer import randn
from tuning.made import measurement

WINOGRAD = "reference/winograd[m=2]"


class Memory:
    """Has room for ``most`` bytes, and counts how often it had none."""

    def __init__(self) -> None:
        self.most, self.refused = 1 << 60, 0

    def workspace(self, nbytes: int, device: torch.device) -> Callable[[], Tensor]:
        def give() -> Tensor:
            if nbytes > self.most:
                self.refused += 1
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes} bytes. GPU 0 has none")
            return torch.empty(nbytes, dtype=torch.uint8, device=device)

        return give


class Known:
    """A session whose store knows of some candidates what they take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times_us: dict[str, float]) -> None:
        self.session = Session(Mode.QUICK, Store.open(None))
        for module in ("eager.decision", "eager.scheduler", "eager.running.oom_fallback", "tuning.session"):
            monkeypatch.setattr(f"convwright.{module}.session", lru_cache(lambda: self.session))
        self.bytes: dict[str, int] = {}
        self._times_us = times_us

    def learn(self, x: Tensor, w: Tensor) -> None:
        found = cw.find(x, w, mode="heuristic", device="cpu")
        rows = {verdict.finding.candidate.id: verdict.finding.candidate for verdict in found.verdicts}
        for id_, time_us in self._times_us.items():
            candidate: Candidate = rows[id_]
            self.bytes[id_] = candidate.workspace_bytes or 0
            self.session.store.record(
                found.problem.key, found.device.key, id_, listing.fingerprint(candidate, found.device),
                measurement(time_us, workspace_bytes=self.bytes[id_]), None,
            )  # fmt: skip


class Builder:
    """Builds plans, but for those ``without`` memory for it, and counts how often it was asked for one of these."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *without: str) -> None:
        self.without, self.refused, self._own = set(without), 0, sessions._plan
        monkeypatch.setattr(sessions, "_plan", self)
        self.cache_clear = self._own.cache_clear

    def __call__(self, candidate: Candidate, device: Any, maker: Any) -> Any:
        if candidate.id in self.without:
            self.refused += 1
            raise RuntimeError("CUDA error: out of memory")
        return self._own(candidate, device, maker)


def last() -> Choice:
    choice = cw.last_choice()
    assert choice is not None
    return choice


def operands() -> tuple[Tensor, Tensor]:
    return randn(2, 4, 9, 8), randn(6, 4, 3, 3)
