"""Functions whose gradients are computed by kernels that fuse what stands ahead of them, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

import convwright as cw
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.gradients.fused_gradients import FusedGradients
from convwright.eager.scheduler import SearchScheduler, When
from convwright.tuning.session import Answer, Choice, Session

SOON = Interval(1.0, 1.0, 1.0)
LATE = Interval(1e6, 1e6, 1e6)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Kernels that fuse something are chosen wherever there are some; whether they served, for each backward pass."""

    def answer(
        self: Session, problem: ConvProblem, device: DeviceFacts, policy: Policy, *_: object, **more: object
    ) -> Answer:
        if not has_extended_epilogue(problem):
            own = self.torchs_own(problem, device, policy)
            assert own is not None
            choice = Choice(own.candidate, device, LATE, LATE)
        else:
            offers = TritonKernels().candidates(problem, device, policy)
            candidate = next(offer for offer in offers if isinstance(offer, Candidate))
            choice = Choice(candidate, device, SOON, LATE)
        return Answer(choice, choice)

    served: list[bool] = []
    serve = FusedGradients.__call__

    def told(self: FusedGradients, *operands: object) -> object:
        result = serve(self, *operands)  # type: ignore[arg-type]
        served.append(result is not None)
        return result

    monkeypatch.setattr(Session, "answer", answer)
    monkeypatch.setattr(FusedGradients, "__call__", told)
    monkeypatch.setattr(SearchScheduler, "when", lambda self, call: When.NOW)
    return served


def leaves(*, bias: bool = True, groups: int = 4) -> tuple[Tensor, Tensor, Tensor | None]:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 7, requires_grad=True)
    w = torch.randn(4, 4 // groups, 3, 3, requires_grad=True)
    return x, w, torch.randn(4, requires_grad=True) if bias else None


def compare(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for ours, own in zip(got, expected, strict=True):
        assert ours.shape == own.shape
        torch.testing.assert_close(ours, own, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", None])
def test_gradients(ran: list[bool], activation: str | None, *, bias: bool) -> None:
    x, w, b = leaves(bias=bias)
    inputs = [each for each in (x, w, b) if each is not None]
    y = cw.conv2d(x, w, b, padding=1, groups=4, activation=activation)
    dy = torch.randn_like(y)
    got = torch.autograd.grad(y, inputs, dy)
    own = F.conv2d(x, w, b, padding=1, groups=4)
    compare(got, torch.autograd.grad(own.relu() if activation else own, inputs, dy))
    assert ran == ([True] if activation or bias else [])


def test_gradients_of_every_kind(ran: list[bool]) -> None:
    """A gradient that lies otherwise is copied first; second derivatives are PyTorch's own."""
    x, w, b = leaves()
    assert b is not None

    def ours() -> Tensor:
        return cw.conv2d(x, w, b, padding=1, groups=4, activation="relu")

    own = F.conv2d(x, w, b, padding=1, groups=4).relu()
    dy = torch.randn_like(own)
    every = [x, w, b]
    spread = torch.tensor(2.0).expand_as(own)
    compare(torch.autograd.grad(ours(), every, spread), torch.autograd.grad(own, every, spread, retain_graph=True))
    turned = dy.contiguous(memory_format=torch.channels_last)
    compare(torch.autograd.grad(ours(), every, turned), torch.autograd.grad(own, every, turned, retain_graph=True))
    assert ran == [True, True]

    first = torch.autograd.grad(ours(), every, dy, create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in first), [x, w])
    first = torch.autograd.grad(own, every, dy, create_graph=True)
    compare(second, torch.autograd.grad(sum(each.square().sum() for each in first), [x, w]))


def test_an_address_that_is_not_aligned(ran: list[bool]) -> None:
    x, w, b = leaves()
    assert b is not None
    y = cw.conv2d(x, w, b, padding=1, groups=4, activation="relu")
    astray = torch.randn(y.numel() + 1)[1:].view_as(y)
    got = torch.autograd.grad(y, [x, w, b], astray)
    own = F.conv2d(x, w, b, padding=1, groups=4).relu()
    compare(got, torch.autograd.grad(own, [x, w, b], astray))
    assert ran == [False]


def test_without_memory_the_rest_serves(ran: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = leaves()
    assert b is not None
    y = cw.conv2d(x, w, b, padding=1, groups=4, activation="relu")

    def short(*operands: object) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("convwright.eager.gradients.fused_gradients.empty", short)
    dy = torch.randn_like(y)
    got = torch.autograd.grad(y, [x, w, b], dy)
    compare(got, torch.autograd.grad(F.conv2d(x, w, b, padding=1, groups=4).relu(), [x, w, b], dy))
    assert ran == [False]
