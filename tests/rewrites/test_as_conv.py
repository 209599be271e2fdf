"""Matrix products as convolutions: the same result, whatever computes the convolution and however matrices lie."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from backends.bound_right import objection_to
from convwright.backends.registry import backend, backends
from convwright.core.binding import bind
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.measuring.checking.data import Kind
from convwright.measuring.hardware.machine import device_facts
from convwright.rewrites import rewrite
from convwright.tuning import listing
from convwright.tuning.chains import chains
from kind_space import linear_problems

CPU = device_facts("cpu")
AS_CONV = rewrite("as-conv")


def wrapped(problem: LinearProblem, names: set[str]) -> list[Candidate]:
    inner = AS_CONV.inner(problem, ())
    offers = [offer for member in backends("conv") for offer in member.candidates(inner, CPU, Policy())]
    return [AS_CONV.wrap(problem, (), each) for each in listing.candidates(offers) if each.id in names]


@settings(max_examples=60)
@given(linear_problems((DType.FP64, DType.FP32)))
def test_it_computes_the_same(problem: LinearProblem) -> None:
    made = wrapped(problem, {"reference/gemm", "torch/default", "torch/onednn"})
    assert len(made) >= 2
    for candidate in made:
        assert objection_to(listing.build(candidate, CPU), [Kind.NORMAL, Kind.CHANNEL_SCALED]) is None, candidate.id


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("linear mb32ic64oc48 ep:bias+relu", "tag:x=nhwc,w=nchw,y=nhwc ep:bias+relu"),
        ("linear mb32ic64oc48 tag:col", "tag:x=nchw,w=1/48/48/48,y=nchw ep:none"),
        ("linear mb1ic64oc48 dt:fp16", "dt:fp16 dir:forward tag:nchw ep:none"),
    ],
)
def test_rows_are_pixels(text: str, inner: str) -> None:
    problem = parse(text)
    assert isinstance(problem, LinearProblem)
    posed = AS_CONV.inner(problem, ())
    assert posed.key.endswith(inner)
    assert (posed.macs * 2, posed.bytes) == (problem.flops, problem.bytes)


def test_a_weight_is_packed_by_the_inner_plan() -> None:
    problem = parse("linear mb4ic16oc8")
    assert isinstance(problem, LinearProblem)
    (candidate,) = wrapped(problem, {"torch/onednn"})
    plan = listing.build(candidate, CPU)
    assert candidate.id == "as-conv(torch/onednn)"
    weight = torch.ones(8, 16)
    packed = plan.prepare(weight)
    assert packed.is_mkldnn
    x = torch.ones(4, 16)
    for y in (plan.compute({"x": x, "w": packed}), plan(x, weight), bind(plan, {"x": x, "w": weight})()):
        assert y.tolist() == [[16.0] * 8] * 4


def test_it_is_for_matrix_products_alone() -> None:
    conv, linear = parse("mb4ic16ih8oc8kh1"), parse("linear mb4ic15oc8 dt:fp16")
    h200 = profile("h200")
    assert "as-conv" not in {step.rewrite.name for chain in chains(conv, h200)[0] for step in chain.steps}
    found, refusals = chains(linear, h200)
    assert [[step.rewrite.name for step in chain.steps] for chain in found] == [
        ["as-conv"], ["as-conv", "pad-c"],
    ]  # fmt: skip
    assert not refusals
    (refusal,) = AS_CONV.arguments(parse("linear mb0ic15oc8"), h200)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "an image needs a pixel, got 0 rows"


def test_a_candidate_is_found_again_by_its_id() -> None:
    problem = parse("linear mb4ic16oc8")
    found = listing.with_id("as-conv(reference/gemm)", problem, CPU, Policy())
    assert found is not None
    assert found.id == "as-conv(reference/gemm)"
    assert listing.fingerprint(found, CPU) == backend("reference").fingerprint(CPU)
