"""Backends of which a test says what they take."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from convwright.backends import registry
from convwright.measuring.disturbances import waiting
from convwright.tuning import budget, chains, find, workers
from convwright.tuning import compile_queue as queues
from convwright.tuning import session as sessions
from convwright.tuning.trials import doubt, quick_timing, side_by_side
from tuning import made_backend
from tuning.fatal import SERVE
from tuning.made import FakeTuner
from tuning.made_backend import Made


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """PyTorch's own call and two backends, one of which compiles, in a time of their own; no rewrites."""
    kinds = {"torch": "MadeTorch", "quick": "MadeQuick", "compiled": "MadeCompiled"}
    own = {name: f"tuning.made_backend:{kind}" for name, kind in kinds.items()}
    monkeypatch.setattr(registry, "BACKENDS", own)
    monkeypatch.setattr(sessions, "SEARCHED", ("cpu", "cuda"))
    monkeypatch.setattr(side_by_side, "WallClock", made_backend.MadeClock)
    monkeypatch.setattr(chains, "REWRITES", ())
    fresh = made_backend.reset()
    monkeypatch.setattr(budget, "wall_us", fresh.time)
    monkeypatch.setattr(side_by_side, "doubt", doubt.doubt)
    monkeypatch.setattr(quick_timing, "MOST_WAITING", waiting.MOST_WAITING)
    monkeypatch.setattr(waiting, "waited_ns", lambda: {"made": int(fresh.waited_us * 1e3)})
    monkeypatch.setattr(waiting, "now_ns", lambda: int(fresh.time() * 1e3))
    monkeypatch.setattr(find, "warm_up", lambda device, store: None)
    monkeypatch.setattr(workers.WorkerPool, "ask", lambda self, task, *asked, **how: None)
    registry.imported.cache_clear()
    queues.compile_queue.cache_clear()
    queues.compile_queue().most, queues.compile_queue().quiet_s = 4, 0.01
    yield fresh
    queues.compile_queue.cache_clear()
    registry.imported.cache_clear()


@pytest.fixture
def fatal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend whose compiler does as it is told, here and in the processes that compile."""
    monkeypatch.setitem(registry.BACKENDS, "fatal", "tuning.fatal:Fatal")
    monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", SERVE.format(paths=sys.path)])
    registry.imported.cache_clear()
    yield
    registry.imported.cache_clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    """A search that measures nothing, in which one candidate is faster than the others."""
    return FakeTuner({"reference/gemm": 10.0}).in_place(monkeypatch)
