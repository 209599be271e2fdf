"""What a plan costs the host, by its kind; the rule is in `objection_of_host`, whose docstring is a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.host_costs import HostCosts, objection_of_host
from convwright.core.problem import ConvProblem

COSTS = HostCosts(
    own_us=10.0, engine_us=14.0, classic_us=40.0, launch_us=6.0, next_launch_us=2.0, operator_us=5.0, node_us=20.0
)
LEAF = Candidate(ConvProblem.parse("ic8ih9oc8kh3"), "triton", "direct", (), Arithmetic.FP32, 0, True, Source.RULE)
WRAPPED = replace(LEAF, backend="rewrite", algorithm="relayout", inner=LEAF)


@pytest.mark.parametrize(
    ("candidate", "launches", "extra_us"),
    [
        (LEAF, 1, -4.0),
        (LEAF, 3, 0.0),
        (replace(LEAF, backend="cudnn", algorithm="engine-3"), 0, 4.0),
        (replace(LEAF, backend="cudnn", algorithm="gemm"), 0, 30.0),
        (replace(LEAF, backend="torch"), 0, 0.0),
        (replace(LEAF, backend="reference", algorithm="gemm"), 0, 15.0),
        (replace(LEAF, backend="reference", algorithm="gemm", workspace_bytes=64), 0, 40.0),
        (replace(LEAF, backend="reference", algorithm="kn2row"), 0, 60.0),
        (WRAPPED, 1, 6.0),
        (replace(WRAPPED, inner=WRAPPED), 1, 16.0),
    ],
)
def test_each_kind_of_plan(candidate: Candidate, launches: int, extra_us: float) -> None:
    assert COSTS.extra_us(candidate, launches) == extra_us


def test_they_are_data() -> None:
    assert HostCosts.from_json(COSTS.to_json()) == COSTS


@pytest.mark.parametrize(
    ("saved_us", "extra_us", "pays"), [(8.0, 2.0, True), (8.0, 2.1, False), (-1.0, 0.0, True), (-1.0, 0.1, False)]
)
def test_a_quarter_of_what_is_saved_pays(saved_us: float, extra_us: float, pays: bool) -> None:
    assert (objection_of_host(saved_us, extra_us) is None) is pays
