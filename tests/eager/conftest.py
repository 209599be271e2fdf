"""Whatever a test replaces is PyTorch's own again behind it; memory that runs out, and what is said of that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from torch.nn import functional as F

import convwright as cw
from convwright.eager.calls.call import FORMS
from convwright.eager.running import runner as runners
from eager.scarce import Memory

OWN = {form.name: form.own for form in FORMS}


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    """Nothing is replaced before a test, and nothing behind it."""
    assert {name: getattr(F, name) for name in OWN} == OWN
    yield
    if {name: getattr(F, name) for name in OWN} != OWN:
        cw.disable()  # which looks through all modules, and takes 15 to 40 ms
    assert {name: getattr(F, name) for name in OWN} == OWN


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    monkeypatch.setattr(runners, "workspace", made.workspace)
    return made


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What was said by warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said: list[str] = []
        yield said
        said += [str(each.message) for each in caught if each.category is cw.MemoryWarning]
