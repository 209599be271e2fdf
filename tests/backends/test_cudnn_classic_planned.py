"""Workspaces of matrix products on tensor cores, planned for an H200 elsewhere and held against what one answered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from convwright.backends.cudnn.classic import planned
from convwright.backends.cudnn.classic.listing import candidates
from convwright.backends.cudnn.classic.planned import planned_bytes
from convwright.backends.cudnn.classic.rules import answer
from convwright.backends.cudnn.faults import fault_of
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

CUDNN = load()
pytestmark = pytest.mark.skipif(isinstance(CUDNN, Missing), reason="cuDNN is not installed")
of_the_records_cudnn = pytest.mark.skipif(
    not isinstance(CUDNN, Missing) and CUDNN.version // 100 != planned._VERSION,
    reason="this cuDNN numbers its engines otherwise than the one that was recorded",
)

H200 = profile("h200")
# One was taken before the rules stood and one afterwards; `benchmarks/classic_bounds.py` compares all of both.
RECORDS = [
    (Path(__file__).parent / "data" / "classic-answers-h200.jsonl.gz", 10),
    (Path(__file__).parents[2] / "benchmarks" / "results" / "h200-classic-answers.jsonl.gz", 16),
]


def unruled(path: Path, every: int) -> Iterator[tuple[ConvProblem, Arithmetic, int]]:
    """What the live GPU serves, and the rules alone know no workspace of, among problems that cuDNN is asked for."""
    with gzip.open(path, "rt") as lines:
        next(lines)
        for record in map(json.loads, islice(lines, None, None, every)):
            problem = ConvProblem.parse(record["problem"])
            if fault_of(problem) is not None:
                continue
            own = native_arithmetic(problem.dtype, tf32=False)
            for name, live in record["answers"].items():
                algorithm = name.removesuffix("[math=tf32]")
                arithmetic = own if algorithm == name else Arithmetic.TF32
                if isinstance(live, int) and answer(problem, algorithm, arithmetic) is None:
                    yield problem, arithmetic, live


@pytest.mark.first_cases(1)
@of_the_records_cudnn
@pytest.mark.parametrize(("path", "every"), RECORDS, ids=["before", "later"])
def test_no_workspace_is_larger_than_its_bound(path: Path, every: int) -> None:
    compared = [
        (problem.key, live, planned_bytes(problem, H200, arithmetic))
        for problem, arithmetic, live in unruled(path, every)
    ]
    known = [(key, live, bound) for key, live, bound in compared if bound is not None]
    assert len(compared) > 300
    assert len(known) > 0.36 * len(compared)
    assert [entry for entry in known if entry[2] < entry[1]] == []
    assert sum(live == bound for _, live, bound in known) > len(known) / 2
    loose = [entry for entry in known if entry[2] > 4 * entry[1] + (1 << 16)]
    assert len(loose) <= 0.02 * len(known)


KNOWN = ConvProblem.parse("mb12ic24oc24ih59iw59oh46ow53kh16kw9ph1pw1dh0dw0 dt:fp32")


@of_the_records_cudnn
def test_it_is_listed_as_a_bound() -> None:
    rows = {row.id: row for row in candidates(KNOWN, H200, Policy()) if isinstance(row, Candidate)}
    row = rows["cudnn/implicit-precomp-gemm[math=tf32]"]
    assert row.workspace_bytes == planned_bytes(KNOWN, H200, Arithmetic.TF32)
    assert (row.workspace_is_bound, row.source) == (True, Source.RULE)


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem.parse("mb8ic64ih28oc64kh1 dt:fp16"),  # one tap without padding is a matrix product by itself
        ConvProblem.parse("g2mb2ic8id8oc8kd3kh3kw3 dt:fp16"),
        ConvProblem.parse("mb4ic16ih56oc24kh21ph10 dt:fp16 tag:nhwc"),
        ConvProblem.parse("mb48ic8ih400oc96kh5ph2"),
        replace(KNOWN, epilogue=ConvProblem.parse("ic8ih9oc8kh3 ep:bias").epilogue),
    ],
    ids=["matrix product", "groups in 3-D", "many taps", "large", "epilogue"],
)
def test_what_the_record_shows_no_bound_for_is_unknown(problem: ConvProblem) -> None:
    arithmetic = native_arithmetic(problem.dtype, tf32=True)
    assert planned_bytes(problem, H200, arithmetic) is None


@of_the_records_cudnn
def test_an_engine_that_was_not_held_against_the_record_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned_bytes(KNOWN, H200, Arithmetic.TF32) is not None
    monkeypatch.setattr(planned, "_ENGINES", {})
    assert planned_bytes(KNOWN, H200, Arithmetic.TF32) is None


def test_another_version_of_cudnn_numbers_its_engines_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    assert not isinstance(library, Missing)
    monkeypatch.setattr(planned, "load", lambda: replace(library, version=92000))
    assert planned_bytes(KNOWN, H200, Arithmetic.TF32) is None
    monkeypatch.setattr(planned, "load", lambda: Missing("no cuDNN here"))
    assert planned_bytes(KNOWN, H200, Arithmetic.TF32) is None
