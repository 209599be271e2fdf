"""The check of addresses in Triton's interpreter that the tests of all kernels there rely on."""

from __future__ import annotations

import pytest

from backends.interpreted import passes_in_the_interpreter

pytest.importorskip("triton")


def test_the_check_finds_what_reaches_too_far() -> None:
    passes_in_the_interpreter("run_bounds.py")
