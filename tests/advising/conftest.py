"""Searches are brief: no test here says how fast a layer is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convwright.settings import BUDGETS_US, Mode


@pytest.fixture(autouse=True, scope="module")
def _briefly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS_US, Mode.QUICK, 40_000.0)
        yield
