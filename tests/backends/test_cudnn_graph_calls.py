"""Calls of plans of cuDNN's graph API, as far as they go without a GPU: all but the foreign call itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from convwright import torch_api
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BackendError, BadInput
from convwright.tensors import empty

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

H200 = profile("h200")
SMALL = "mb2ic16ih10oc16kh3ph1"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(torch_api, "current_gpu", lambda: 0)
    monkeypatch.setattr(torch_api, "current_stream", lambda index: 7)
    monkeypatch.setattr(GraphPlan, "_handle", lambda plan, stream: 1)
    return made


def plan_here(text: str, calls: list[tuple[object, ...]], status: int = 0) -> GraphPlan:
    offers = graph.candidates(ConvProblem.parse(text), H200, Policy())
    first = next(offer for offer in offers if isinstance(offer, Candidate))
    plan = GraphPlan(first, graph.finalized(first, H200), torch.device("cpu", 0))
    plan._execute = lambda *arguments: calls.append(arguments) or status  # type: ignore[func-returns-value]
    return plan


def test_a_call_is_one_foreign_call_and_its_pack_is_kept(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(f"{SMALL} dt:fp16 tag:nhwc", calls)
    problem = plan.candidate.problem
    x, w, y = (empty(spec, "cpu") for spec in (problem.x, problem.w, problem.y))
    workspace = torch.empty(plan.workspace_bytes + 1, dtype=torch.uint8)
    assert plan(x, w, out=y, workspace=workspace) is y
    plan(x, w, out=y, workspace=workspace)
    assert len(calls) == 2
    assert calls[0] == calls[1]
    other = plan(x, w, workspace=workspace)
    assert (other.shape, other.stride()) == (problem.y.shape, problem.y.strides)
    assert calls[2] != calls[0]


def test_packs_are_kept_within_bounds(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(SMALL, calls)
    problem = plan.candidate.problem
    x, w = empty(problem.x, "cpu"), empty(problem.w, "cpu")
    kept = [plan(x, w) for _ in range(100)]
    assert len(kept) == 100
    assert len(plan._packs) <= 64


def test_what_the_epilogue_needs_is_asked_for(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(f"{SMALL} ep:residual+bias+relu", calls)
    problem = plan.candidate.problem
    x, w, z = (empty(spec, "cpu") for spec in (problem.x, problem.w, problem.y))
    bias = torch.zeros(problem.k)
    with pytest.raises(BadInput, match="needs the operand `residual`"):
        plan(x, w, bias)
    with pytest.raises(BadInput, match="needs the operand `bias`"):
        plan(x, w, residual=z)
    plan(x, w, bias, z)
    assert len(calls) == 1


def test_without_a_bias_zeros_are_added(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(f"{SMALL} ep:relu", calls)
    problem = plan.candidate.problem
    plan(empty(problem.x, "cpu"), empty(problem.w, "cpu"))
    assert len(calls) == 1


def test_misaligned_operands_are_refused(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(SMALL, calls)
    problem = plan.candidate.problem
    shifted = torch.empty(problem.x.numel + 1)[1:].view(problem.x.shape)
    with pytest.raises(BadInput, match="`x` must be aligned to 16 bytes"):
        plan(shifted, empty(problem.w, "cpu"))


def test_a_misaligned_bias_is_refused_ahead_of_the_fault_that_it_would_be(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(f"{SMALL} ep:bias", calls)
    problem = plan.candidate.problem
    with pytest.raises(BadInput, match="`bias` must be aligned to 16 bytes"):
        plan(empty(problem.x, "cpu"), empty(problem.w, "cpu"), torch.zeros(problem.k + 1)[1:])
    assert not calls


def test_a_failing_status_is_raised_in_words(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(SMALL, calls, status=5003)
    problem = plan.candidate.problem
    with pytest.raises(BackendError, match=r"engine-.*status 5003"):
        plan(empty(problem.x, "cpu"), empty(problem.w, "cpu"))


def test_a_weight_is_packed_only_where_it_must_be(calls: list[tuple[object, ...]]) -> None:
    plan = plan_here(f"{SMALL} dt:fp16 tag:nhwc", calls)
    w = plan.candidate.problem.w
    given = torch.randn(w.shape, dtype=torch.float16, requires_grad=True)
    packed = plan.prepare(given)
    assert packed.stride() == w.strides
    assert not packed.requires_grad
    assert torch.equal(packed, given)
    assert plan.prepare(packed) is packed
