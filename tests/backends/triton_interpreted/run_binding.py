"""Plans of Triton kernels bound by role, in the interpreter. Its own process runs this."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from backends.test_binding import objection_to
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")


@pytest.mark.parametrize(
    "text",
    [
        "mb2ic16ih6oc16kh3ph1 tag:nhwc ep:residual+bias+relu",
        "mb2ic16ih6oc16kh3sh2ph1 tag:nhwc dir:backward_data",
        "mb2ic16ih6oc16kh3ph1 tag:nhwc dir:backward_weight",
        "mb2ic4ih6oc2kh3ph1 ep:bias",
    ],
)
def test_one_plan_of_each_algorithm(text: str) -> None:
    problem = ConvProblem.parse(text)
    offers = [each for each in BACKEND.candidates(problem, CPU, Policy()) if isinstance(each, Candidate)]
    found = {each.algorithm: each for each in reversed(offers)}
    assert found
    for candidate in [*found.values()][:6]:
        assert objection_to(BACKEND.build(candidate, CPU), into=True) is None, candidate.id
