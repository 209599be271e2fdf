"""Triton's interpreter is slow: of each test here that does not say otherwise, all cases but the first three are."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("first_cases") is None:
            item.add_marker(pytest.mark.first_cases(3))
