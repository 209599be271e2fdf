"""A weight is packed anew at every call, or once where it is said to be constant, and again when it has changed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.backends.reference.gemm import GemmPlan
from convwright.core.policy import Policy, Weights
from convwright.eager.calls.call import CONV2D
from eager.prefer import GEMM, channels_last, count_calls, prefer, randn


def test_packing_happens_at_every_call_where_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = randn(2, 4, 9, 8), channels_last(randn(6, 4, 3, 3))
    cw.conv2d(x, w, algorithm=GEMM)
    packed = count_calls(monkeypatch, "prepare")
    CONV2D.slots.forget()
    cw.conv2d(x, w, algorithm=GEMM)
    packed.clear()
    for _ in range(3):
        cw.conv2d(x, w, algorithm=GEMM)
    assert len(packed) == 3


def test_constant_weights_are_packed_once_and_again_when_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(weights=Weights.CONSTANT)
    packed = count_calls(monkeypatch, "prepare")
    x, w = randn(2, 4, 9, 8), channels_last(randn(6, 4, 3, 3))

    def call() -> int:
        """How often the weight was packed in two calls, both of which are right."""
        packed.clear()
        for _ in range(2):
            assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=policy), F.conv2d(x, w))
        return len(packed)

    assert call() >= 1
    assert call() == 0
    w.mul_(2)
    assert call() == 1
    w[0].zero_()
    assert call() == 1
    w.data = channels_last(randn(6, 4, 3, 3, seed=5))
    assert call() == 1
    assert call() == 0


@pytest.mark.parametrize("fused", [False, True])
def test_a_constant_weight_is_packed_again_behind_an_optimizers_step(fused: bool) -> None:
    """A fused one writes to it without being counted."""
    policy, x = Policy(weights=Weights.CONSTANT), randn(2, 4, 9, 8)
    w = channels_last(randn(6, 4, 3, 3)).requires_grad_()
    optimizer = torch.optim.AdamW([w], lr=0.1, fused=fused)
    for _ in range(3):
        y = cw.conv2d(x, w, algorithm=GEMM, policy=policy)
        assert_close(y, F.conv2d(x, w))
        y.square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=policy), F.conv2d(x, w))


def test_each_constant_weight_has_its_own_packing() -> None:
    policy, x = Policy(weights=Weights.CONSTANT), randn(2, 4, 9, 8)
    weights = [channels_last(randn(6, 4, 3, 3, seed=i)) for i in range(4)]
    for _ in range(3):
        for w in weights:
            assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=policy), F.conv2d(x, w))


def test_a_constant_weight_may_be_gone_and_another_come_in_its_place() -> None:
    policy, x = Policy(weights=Weights.CONSTANT), randn(2, 4, 9, 8)
    for i in range(30):
        w = channels_last(randn(6, 4, 3, 3, seed=i))
        assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=policy), F.conv2d(x, w))
        del w


def test_the_packed_copy_of_a_weight_that_is_gone_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[weakref.ref[Tensor]] = []
    own = GemmPlan.prepare

    def prepared(self: GemmPlan, weight: Tensor) -> Tensor:
        made = own(self, weight).clone()
        packed.append(weakref.ref(made))
        return made

    monkeypatch.setattr(GemmPlan, "prepare", prepared)
    prefer(monkeypatch, GEMM)
    policy = Policy(weights=Weights.CONSTANT)
    weights = [randn(6, 4, 3, 3, seed=seed) for seed in range(3)]
    for w in weights:
        for _ in range(2):
            cw.conv2d(randn(2, 4, 9, 8), w, policy=policy)
    del w
    assert sum(each() is not None for each in packed) == 3
    del weights[1]
    gc.collect()
    assert sum(each() is not None for each in packed) == 2


def test_constant_weights_under_inference_mode() -> None:
    policy, x = Policy(weights=Weights.CONSTANT), randn(2, 4, 9, 8)
    with torch.inference_mode():
        w = channels_last(randn(6, 4, 3, 3))
        for _ in range(3):
            assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=policy), F.conv2d(x, w))
            w.mul_(2)


def test_constant_weights_may_still_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    policy, x = Policy(weights=Weights.CONSTANT), randn(2, 4, 9, 8, grad=True)
    w = channels_last(randn(6, 4, 3, 3)).requires_grad_()
    for _ in range(3):
        ours = torch.autograd.grad(cw.conv2d(x, w, policy=policy).square().sum(), (x, w))
        assert_close(ours, torch.autograd.grad(F.conv2d(x, w).square().sum(), (x, w)))
        with torch.no_grad():
            w -= 0.1 * ours[1]
