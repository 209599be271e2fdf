"""What one of these tests has compiled, no other compiles again, and what a user's programs compiled none takes."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    of_this_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_this_run = of_this_run.parent  # shared with the workers beside this one
    monkeypatch.setenv("TRITON_CACHE_DIR", str(of_this_run / "triton"))
