"""A tuned model trains by kernels that fuse what stands ahead of a gradient, and without a search: in Triton's
interpreter, with times made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

pytest.importorskip("triton")

import convwright as cw
from convwright.advising.tuned import Tuned
from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.gradients.fused_gradients import FusedGradients
from convwright.settings import settings
from convwright.tuning import run
from convwright.tuning import session as sessions
from convwright.tuning.trials.search_input import SearchInput
from tuning.made import measurement

X = torch.randn(2, 4, 5, 7)


class Functional(nn.Module):
    """A layer that asks for its ReLU, behind one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, groups=4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return cw.conv2d(self.first(x), self.second.weight, self.second.bias, padding=1, groups=4, activation="relu")


def time_us(candidate: Candidate) -> float:
    """PyTorch's own calls take long, and longest with what stands ahead; a kernel that fuses that takes no time."""
    rare = has_extended_epilogue(candidate.problem)
    if rare and candidate.backend == "triton" and candidate.inner is None:
        return 1.0
    return 1500.0 if rare and candidate.id == "torch/default" else 1000.0 if candidate.id == "torch/default" else 2000.0


@pytest.fixture(autouse=True)
def searched(monkeypatch: pytest.MonkeyPatch) -> list[ConvProblem]:
    """The problems that were measured, by hand; calls search."""
    found: list[ConvProblem] = []

    def measured(listed: Iterable[Candidate], contest: SearchInput) -> Any:
        found.append(contest.problem)
        return [Finding(each, measurement(time_us(each), workspace_bytes=each.workspace_bytes or 0)) for each in listed]

    monkeypatch.setattr(run, "measure_candidates", measured)
    monkeypatch.setattr(run, "glance", lambda listed, contest: list(listed))
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    settings.cache_clear()
    sessions.session.cache_clear()
    return found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether fused gradients served, for each backward pass of a layer that has them."""
    told: list[bool] = []
    serve = FusedGradients.__call__

    def watched(self: FusedGradients, *operands: Any) -> Any:
        result = serve(self, *operands)
        told.append(result is not None)
        return result

    monkeypatch.setattr(FusedGradients, "__call__", watched)
    return told


def asked(tuned: Tuned) -> set[tuple[str, str]]:
    problems = (each.posed.problem for each in tuned.problems)
    return {(str(problem.direction), str(problem.epilogue)) for problem in problems}


def step(model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(model(X).square().sum(), list(model.parameters())))


def test_a_step_asks_for_nothing_that_was_not_searched(searched: list[ConvProblem], served: list[bool]) -> None:
    model = Functional()
    tuned = cw.tune(model, X, backward=True, mode="quick")
    assert asked(tuned) == {
        ("forward", "bias"), ("backward_weight", "none"), ("backward_weight", "bias"), ("forward", "bias+relu"),
        ("backward_data", "none"), ("backward_data", "relu"), ("backward_weight", "bias+relu"),
    }  # fmt: skip
    fused = [each for each in tuned.problems if has_extended_epilogue(each.posed.problem)]
    assert all(each.candidate is not None and each.candidate.backend == "triton" for each in fused)
    searched.clear()
    with cw.enabled():
        got = step(model)
    assert searched == []
    assert served == [True, True]
    first, second = model.first, model.second
    y = F.conv2d(first(X), second.weight, second.bias, padding=1, groups=4).relu()
    for ours, own in zip(got, torch.autograd.grad(y.square().sum(), list(model.parameters())), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-4)


def test_a_layer_says_what_computes_its_gradients(searched: list[ConvProblem], served: list[bool]) -> None:
    model = cw.convert(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 4, 3, groups=4, bias=False)))
    cw.tune(model, X, backward=True, mode="quick")
    searched.clear()
    step(model)
    assert served == [True]
    with_bias, without = model[0].choices, model[1].choices
    assert with_bias["backward_weight"].startswith("triton/few-weights[")
    assert without == {"forward": "torch/default", "backward_data": "torch/default", "backward_weight": "torch/default"}
    assert searched == []


def test_what_is_named_or_asks_for_more_than_speed_has_none(served: list[bool]) -> None:
    policy = Policy(objective="workspace")
    tuned = cw.tune(Functional(), X, backward=True, mode="heuristic", policy=policy)
    assert not any(has_extended_epilogue(each.posed.problem) for each in tuned.problems)
    model = cw.convert(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4)), choices={"0": "torch/default"})
    step(model)
    assert model[0].choices == {"forward": "torch/default", "backward_weight": "torch/default"}
    assert served == []
