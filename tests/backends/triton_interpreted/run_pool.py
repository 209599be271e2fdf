"""Generated kernels for pooling in Triton's interpreter, held against float64. Its own process runs this."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

pytest.importorskip("triton")

from backends.bound_right import objection_to
from convwright.backends.triton.pool.backend import TritonPool
from convwright.backends.triton.pool.tile import Tile
from convwright.backends.triton.pool.walk import Walk
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.measuring.checking.data import ERROR_KINDS, Kind
from convwright.measuring.hardware.machine import device_facts
from kind_space import pool_problems

BACKEND, CPU = TritonPool(), device_facts("cpu")


def candidates(problem: Problem) -> list[Candidate]:
    return [each for each in BACKEND.candidates(problem, CPU, Policy()) if isinstance(each, Candidate)]


def small(candidate: Candidate) -> list[Candidate]:
    """The same with tiles so small that an output of a test has several, cut off at its ends."""
    dims = Walk.of(candidate.problem).dims
    has_rows = len(dims) > 1 and min(dim.size for dim in dims[-2:]) > 1
    return [replace(candidate, config=tile.config) for tile in (Tile(0, 16, 1), *[Tile(4, 2, 1)] * has_rows)]


@settings(max_examples=15)
@given(pool_problems((DType.FP32, DType.FP16, DType.BF16)))
def test_any_window(problem: PoolProblem) -> None:
    listed = candidates(problem)
    if not listed:
        assert problem.dtype is DType.BF16
    for candidate in (each for first in listed[:1] for each in (first, *small(first))):
        assert objection_to(BACKEND.build(candidate, CPU), [Kind.NAN]) is None, candidate.id


@pytest.mark.parametrize(
    "text",
    [
        "pool max mb2ic5ih9 kh3sh2ph1",
        "pool max mb2ic8ih7 kh3sh2ph1 tag:nhwc dt:fp16",
        "pool avg mb2ic5ih8 kh3sh2ph1 ceil:1 include_pad:0 dt:fp16",
        "pool avg ic8ih7 kh2 tag:x=nchw,y=nhwc",
        "pool avg ic3ih7 kh7",
        "pool avg mb2ic3ih6 kh7sh3ph3 include_pad:0 tag:nhwc",
        "pool max ic3iw70 kw40sw7pw20",
        "pool max mb2ic4id5 kd3sd2pd1dd1 tag:nhwc",
        "pool max ic2ih1 kh3sh1ph1",
        "pool avg ic3ih5 kh3sh1ph1 divisor:7 tag:x=225/1/45/3,y=250/1/50/5",
        "pool max ic3ih5 kh2 tag:x=0/0/5/1,y=nchw",
    ],
)
def test_every_kind_of_data(text: str) -> None:
    listed = candidates(parse(text))
    assert objection_to(BACKEND.build(listed[0], CPU), (*ERROR_KINDS, Kind.INTEGERS)) is None
    for candidate in (*small(listed[0]), *listed[1:]):
        assert objection_to(BACKEND.build(candidate, CPU), [Kind.NORMAL]) is None, candidate.id
