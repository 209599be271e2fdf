"""The benchmark that holds what kernels took against what they should take."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = "g1mb1ic4oc1ih64iw64oh64ow64kh3kw3sh1sw1ph1pw1dh0dw0 dt:fp32 dir:forward tag:nchw ep:none"


@pytest.fixture(scope="module")
def benchmark_script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "kernel_estimates.py"))


def test_what_is_offered_still_is_held_against_its_estimate(benchmark_script: dict[str, Any], tmp_path: Path) -> None:
    device = profile("h200")
    offered = benchmark_script["offered"](ConvProblem.parse(PROBLEM), device)
    first, second = [each for each in offered.values() if each.algorithm == "direct"][:2]
    record = tmp_path / "record.jsonl"
    lines = [
        {
            "benchmark": "own kernels", "problem": PROBLEM,
            "us": {
                "default": {"value": 9.0}, first.id: {"value": 3 * first.estimated_us}, "triton/gone": {"value": 1.0},
            },
        },
        {
            "benchmark": "suite choices", "problem": PROBLEM,
            "table": [{"id": second.id, "us": {"value": second.estimated_us}}, {"id": first.id, "us": None}],
        },
    ]  # fmt: skip
    record.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert benchmark_script["ratios"]([record], device) == {"direct, in planes": pytest.approx([3.0, 1.0])}


def test_a_row_tells_the_spread(benchmark_script: dict[str, Any]) -> None:
    row = benchmark_script["told"]("name", [float(ratio) for ratio in range(10, 0, -1)])
    assert row.split() == ["name", "10", "1.00", "5.00", "9.00", "20%"]
