"""Plans of matrix products, expressions and copies, and plans that are bound to their operands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from convwright.core.kinds.text import parse
from convwright.errors import BadInput, Refused
from convwright.measuring.checking.data import Kind, operands
from convwright.tensors import empty, spoil_

LINEAR = "linear mb4ic16oc8 ep:bias+relu"
NORM = 'pointwise "(a - mean(a)) * rsqrt(mean(a * a)) + s" mb3ic8 s:c'
RESIZE = "resize linear mb2ic3ih4 oh7"
PAD = "copy mb2ic3ih4 nchw->nhwc pad:c=0:1"
CONV = "mb2ic4ih8oc6kh3ph1 ep:bias"


def given(text: str) -> dict[str, torch.Tensor]:
    return {str(role): each for role, each in operands(parse(text), Kind.NORMAL, "cpu").items()}


def expected(text: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    if text == LINEAR:
        return F.linear(tensors["x"], tensors["w"], tensors["bias"]).relu()
    if text == NORM:
        a = tensors["a"]
        return (a - a.mean(1, keepdim=True)) * (a * a).mean(1, keepdim=True).rsqrt() + tensors["s"]
    if text == RESIZE:
        return F.interpolate(tensors["x"], size=7, mode="bilinear")
    if text == PAD:
        return F.pad(tensors["x"], (0, 0, 0, 0, 0, 1))
    return F.conv2d(tensors["x"], tensors["w"], tensors["bias"], padding=1)


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        (LINEAR, None), (LINEAR, "auto"), (LINEAR, "torch/default"), (LINEAR, "torch/onednn"),
        (LINEAR, "as-conv(reference/gemm)"), (NORM, None), (NORM, "torch/default"), (NORM, "torch/into"), (PAD, None),
        (RESIZE, None), (RESIZE, "torch/default"),
        (CONV, None), (CONV, "reference/gemm"), (CONV, "relayout(nhwc, torch/default)"), (CONV, "torch/onednn"),
    ],
)  # fmt: skip
def test_a_bound_plan_computes_from_what_its_operands_hold(text: str, algorithm: str | None) -> None:
    ready, tensors = cw.plan(text, algorithm=algorithm, device="cpu"), given(text)
    y = spoil_(empty(ready.problem.output, "cpu"))
    workspace = torch.empty(ready.workspace_bytes, dtype=torch.uint8)
    into, own = ready.bind(**tensors, y=y, workspace=workspace), ready.bind(**tensors)
    for _ in range(2):
        right = expected(text, tensors)
        assert into() is y
        torch.testing.assert_close(y, right)
        made = own()
        torch.testing.assert_close(made, right)
        assert made.data_ptr() not in (y.data_ptr(), own().data_ptr())
        first = next(iter(tensors))
        tensors[first].mul_(-2)


@pytest.mark.parametrize("text", [LINEAR, NORM, PAD])
def test_operands_come_in_their_order_or_by_name(text: str) -> None:
    ready, tensors = cw.plan(text, device="cpu"), given(text)
    right, first = expected(text, tensors), next(iter(tensors))
    torch.testing.assert_close(ready(*tensors.values()), right)
    torch.testing.assert_close(ready(tensors[first], **{n: t for n, t in tensors.items() if n != first}), right)
    out = empty(ready.problem.output, "cpu")
    assert ready(**tensors, out=out) is out
    torch.testing.assert_close(out, right)


def test_a_plan_says_what_it_is() -> None:
    ready = cw.plan(parse(NORM), algorithm="torch/into", device="cpu")
    assert isinstance(ready, cw.TensorPlan)
    assert ready.problem == parse(NORM)
    assert ready.candidate.id == "torch/into"
    assert ready.workspace_bytes == 256
    assert repr(ready).startswith('<TensorPlan: torch/into for pointwise "(a - mean(a))')


def test_the_policy_and_the_device_are_asked() -> None:
    deterministic = cw.Policy(deterministic=True)
    assert cw.plan(NORM, device="cpu", policy=deterministic).candidate.deterministic
    with pytest.raises(BadInput, match="a plan runs where it is made, and NVIDIA H200 is not in this machine"):
        cw.plan(NORM, device="h200")
    with pytest.raises(Refused, match=r"torch/into cannot compute .*: needs an operand of the output's size"):
        cw.plan('pointwise "s + 1" mb2ic8 s:1', device="cpu", algorithm="torch/into")
    with pytest.raises(BadInput, match="no algorithm here is called 'torch/nope'; for this problem there are"):
        cw.plan(NORM, device="cpu", algorithm="torch/nope")
    with pytest.raises(BadInput, match="only plans of convolutions run on addresses, got copy mb2ic3"):
        cw.plan(PAD, device="cpu", launchable=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {"a": t["a"]}, "takes a, s, and y to write to, got a"),
        (lambda t: {**t, "b": t["s"]}, "takes a, s, and y to write to, got a, s, b"),
        (lambda t: {**t, "a": t["a"].double()}, "`a` must be torch.float32, .* got torch.float64"),
        (lambda t: {**t, "a": t["a"][:2]}, r"`a` must have the sizes \(3, 8\), .* got \(2, 8\)"),
        (lambda t: {**t, "a": t["a"].t().contiguous().t()}, r"`a` must have the strides \(8, 1\)"),
        (lambda t: {**t, "a": t["a"].to("meta")}, "`a` must be on cpu"),
        (lambda t: {**t, "a": [1.0]}, "`a` must be a tensor, got list"),
        (lambda t: {**t, "y": torch.empty(3, 7)}, r"`y` must have the sizes \(3, 8\)"),
        (lambda t: {**t, "workspace": 3}, "`workspace` must be a tensor, got int"),
        (
            lambda t: {**t, "workspace": torch.empty(8, dtype=torch.uint8)},
            "`workspace` must have 256 bytes on cpu, got 8 on cpu",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change: Any, said: str) -> None:
    ready = cw.plan(NORM, algorithm="torch/into", device="cpu")
    with pytest.raises(BadInput, match=said):
        ready.bind(**change(given(NORM)))


def test_too_many_operands_and_one_that_comes_twice_are_refused() -> None:
    ready, tensors = cw.plan(NORM, device="cpu"), given(NORM)
    with pytest.raises(BadInput, match="takes a, s, got 3 operands"):
        ready(*tensors.values(), tensors["s"])
    with pytest.raises(BadInput, match="`a` is given twice, by its place and by its name"):
        ready(tensors["a"], **tensors)


def test_a_convolution_is_bound_with_rare_operands_and_must_have_what_it_adds_to() -> None:
    text = "mb2ic4ih8oc6kh3ph1 dir:backward_weight ep:accumulate"
    ready = cw.plan(text, algorithm="torch/default", device="cpu")
    x, dy, dw = torch.randn(2, 4, 8, 8), torch.randn(2, 6, 8, 8), torch.ones(6, 4, 3, 3)
    call = ready.bind(x=x, dy=dy, dw=dw)
    w = torch.zeros(6, 4, 3, 3, requires_grad=True)
    F.conv2d(x, w, padding=1).backward(dy)
    assert w.grad is not None
    for times in (1, 2):
        call()
        torch.testing.assert_close(dw, 1 + times * w.grad, rtol=1e-4, atol=1e-4)
    with pytest.raises(BadInput, match="a problem that accumulates adds to `dw`, which is missing"):
        ready.bind(x=x, dy=dy)


def test_a_weight_that_lies_otherwise_is_laid_as_the_problem_says() -> None:
    ready = cw.plan(f"{CONV} tag:nhwc", algorithm="reference/gemm", device="cpu")
    tensors = given(CONV)
    x = tensors["x"].contiguous(memory_format=torch.channels_last)
    made = ready.bind(x=x, w=tensors["w"], bias=tensors["bias"])()
    torch.testing.assert_close(made, expected(CONV, tensors))


@pytest.mark.parametrize(("text", "algorithm"), [(LINEAR, "torch/default"), (LINEAR, "as-conv(torch/default)")])
def test_autocast_casts_nothing_and_no_gradient_is_followed(text: str, algorithm: str) -> None:
    ready, tensors = cw.plan(text, algorithm=algorithm, device="cpu"), given(text)
    right = expected(text, tensors)
    for each in tensors.values():
        each.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        call = ready.bind(**tensors)
        made = call()
    assert not made.requires_grad
    torch.testing.assert_close(made, right)
    torch.testing.assert_close(call(), right)
