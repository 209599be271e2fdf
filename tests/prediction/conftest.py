"""Fits that take a short time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convwright.prediction import learned_rates, row_distance


@pytest.fixture(scope="module")
def few_steps() -> Iterator[None]:
    """The distance of rows and the rates of parts are learned in fewer steps, which is enough for most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_distance, "_STEPS", 10)
        patch.setattr(learned_rates, "_EPOCHS", 5)
        yield
