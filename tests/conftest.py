"""No test reads or writes a user's store, none knows of another's choices, and Hypothesis tries the same each time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from math import inf

import pytest
import torch
from hypothesis import settings as hypothesis

from convwright import flags
from convwright.eager.calls.call import forget
from convwright.eager.latest import latest
from convwright.eager.scheduler import scheduler
from convwright.settings import settings
from convwright.tuning import session as sessions

# Set here as well as in the fixture: doctests and processes that a test starts are outside the fixture's reach.
os.environ["CONVWRIGHT_STORE"] = "none"
torch.set_num_threads(min(2, torch.get_num_threads()))
hypothesis.register_profile("same each time", derandomize=True, deadline=None)
hypothesis.load_profile("same each time")


# In Triton's interpreter all tests are slow, and of each only so many cases are not marked so.
_INTERPRETED, _INTERPRETED_CASES = "triton_interpreted", 2


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what ``-m "not slow"`` excludes
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is marked ``first_cases(n)``, all cases but the first n are slow."""
    seen = Counter[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        seen[test] += 1
        marker = item.get_closest_marker("first_cases")
        most = _INTERPRETED_CASES if item.path.parent.name == _INTERPRETED else inf
        if seen[test] > (most if marker is None else marker.args[0]):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty store in memory, and a session that measures nothing by itself."""
    monkeypatch.setenv("CONVWRIGHT_STORE", "none")
    monkeypatch.setenv("CONVWRIGHT_MODE", "heuristic")
    _forget()
    yield
    _forget()


@pytest.fixture(autouse=True)
def _leaves_flags() -> Iterator[None]:
    """Whoever changes PyTorch's flags sets them back: other tests' choices hang on them."""
    before = _flags()
    yield
    assert _flags() == before


def _flags() -> object:
    precisions = (torch.backends, torch.backends.cudnn, torch.backends.cudnn.conv, torch.backends.cuda.matmul)
    return flags.state(), flags.onednn_enabled(), [each.fp32_precision for each in precisions]


def _forget() -> None:
    settings.cache_clear()
    sessions.session.cache_clear()
    sessions._plan.cache_clear()
    forget()
    latest.choice = None
    scheduler.forget()
