"""Fits that take a short time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convwright.prediction import row_distance


@pytest.fixture(scope="module")
def few_steps() -> Iterator[None]:
    """The distance of rows is learned in fewer steps, which most tests do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_distance, "_STEPS", 10)
        yield
