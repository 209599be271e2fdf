"""Whatever a test replaces is PyTorch's own again behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.nn import functional as F

import convwright as cw
from convwright.ops.form import FORMS

OWN = {form.name: form.own for form in FORMS}


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    """Nothing is replaced before a test, and nothing behind it."""
    assert {name: getattr(F, name) for name in OWN} == OWN
    yield
    if {name: getattr(F, name) for name in OWN} != OWN:
        cw.disable()  # which looks through all modules, and takes 15 to 40 ms
    assert {name: getattr(F, name) for name in OWN} == OWN
