"""What is given back goes to JSON, by one and the same means."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from math import inf
from typing import Any

import pytest

from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, Interval
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.record import Record, property_names
from convwright.tuning.choose import Verdict, choose
from convwright.tuning.session import Choice
from tuning.made import CPU, PROBLEM, finding

FOUND = finding("reference/gemm", 5.0)
WRAPPED = replace(FOUND.candidate, backend="rewrite", algorithm="relayout", inner=FOUND.candidate)
(VERDICT,) = choose([FOUND], None, Policy())
EXAMPLES: list[Record] = [
    PROBLEM, CPU, WRAPPED, FOUND, VERDICT, Policy(arithmetic=["fp32", "tf32"]), Refusal("cudnn/gemm", "no GPU"),
    Interval(1.0, 0.5, 1.5), Choice(FOUND.candidate, CPU, device_us=Interval(5.0, 4.0, 6.0)), Finding(WRAPPED),
]  # fmt: skip


def strict(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_it_is_strict_json_with_every_field(example: Record) -> None:
    record = example.to_json()
    assert strict(record) == record
    names = {field.name for field in fields(example)}  # type: ignore[arg-type]
    assert set(record) == names | set(property_names(type(example)))


def test_what_identifies_it_is_told() -> None:
    assert ConvProblem.parse(PROBLEM.to_json()["key"]) == PROBLEM
    assert WRAPPED.to_json()["id"] == WRAPPED.id
    assert WRAPPED.to_json()["inner"]["id"] == FOUND.candidate.id
    assert CPU.to_json()["key"] == CPU.key
    assert isinstance(VERDICT, Verdict)
    assert VERDICT.to_json()["finding"]["candidate"]["problem"]["key"] == PROBLEM.key
    assert isinstance(FOUND.candidate, Candidate)


def test_sets_have_an_order_words_are_words_and_an_infinity_is_one() -> None:
    record = Policy(max_error=inf, arithmetic=[Arithmetic.TF32, Arithmetic.FP32]).to_json()
    assert (record["max_error"], record["arithmetic"], record["objective"]) == ("inf", ["fp32", "tf32"], "time")
    assert type(record["objective"]) is str
