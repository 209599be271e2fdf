"""C for an H200, an A100 and a T4: each gets an engine of its own, which its file asks cuDNN for on that device."""

from __future__ import annotations

from ctypes import byref, c_void_p
from pathlib import Path

import pytest

from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.emit.any_sizes import emit_c_dynamic
from convwright.emit.one import emit_c
from convwright.errors import ConvwrightError
from emit.compiled import complaints, missing, with_fake_device

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed"),
]
TARGETS = ["h200", "a100", "t4"]
LAYER = "mb32ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc"


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
@pytest.mark.parametrize("name", TARGETS)
def test_the_file_makes_the_plan_that_was_planned(name: str, direction: str, tmp_path: Path) -> None:
    problem = ConvProblem.parse(f"{LAYER} dir:{direction}")
    found = emit_c(problem, device=name)
    offers = graph.candidates(problem, profile(name), Policy())
    assert found.chosen == (next(offer for offer in offers if isinstance(offer, Candidate)),)
    library, plan = with_fake_device(found, tmp_path), c_void_p()
    record = profile(name).properties_json
    assert record is not None
    assert library.fake_device_is(record.encode()) == 0
    assert library.conv_create(byref(plan)) == 0, library.conv_last_failure().said
    assert library.conv_workspace_bytes(plan) == found.chosen[0].workspace_bytes
    library.conv_destroy(plan)


@pytest.mark.parametrize("name", TARGETS)
def test_any_sizes_compile_without_a_warning(name: str, tmp_path: Path) -> None:
    found = emit_c_dynamic([LAYER], dtype="fp16", layout="nhwc", device=name)
    assert [candidate.problem.key for candidate in found.chosen] == [ConvProblem.parse(LAYER).key]
    assert complaints(found, tmp_path, "C") == ""


def test_what_a_device_has_not_is_refused_in_words() -> None:
    with pytest.raises(ConvwrightError, match="Tesla T4"):
        emit_c(LAYER.replace("fp16", "bf16"), device="t4")
