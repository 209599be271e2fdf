"""When gradients fuse what stands ahead of them, and what they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from backends.interpreted import passes_in_the_interpreter
from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager.calls.call import CONV2D, Call, Request
from convwright.eager.calls.posed import Wanted
from convwright.eager.gradients.fused_gradients import are_faster, fused_problems, with_shared_work
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.session import Choice

CPU = device_facts("cpu")
SIZES = "g8mb2ic8ih9oc8kh3ph1"


def exactly(us: float) -> Interval:
    return Interval(us, us, us)


def choice(direction: str, epilogue: str, us: float, torch_us: float, *, backend: str = "triton") -> Choice:
    problem = ConvProblem.parse(f"{SIZES} dir:{direction} ep:{epilogue}")
    name = "default" if backend == "torch" else "direct"
    candidate = Candidate(problem, backend, name, (), Arithmetic.FP32, 0, True, Source.RULE)
    return Choice(candidate, CPU, exactly(us), exactly(torch_us))


# PyTorch's own gradients take 20 and 30, ReLU's derivative 5, the bias's sum 4.
PLAIN = [choice("backward_data", "none", 10, 20), choice("backward_weight", "none", 12, 30)]


@pytest.mark.parametrize(
    ("to_input", "to_weight", "expected"),
    [(11, 13, True), (14, 16.3, True), (14, 16.5, False), (30, 2, False)],
)  # 10 + 12 and 9 ahead of them; less than a tie is none
def test_what_stands_ahead_is_counted_once(to_input: float, to_weight: float, *, expected: bool) -> None:
    fused = [choice("backward_data", "relu", to_input, 25), choice("backward_weight", "bias+relu", to_weight, 39)]
    assert are_faster(fused, PLAIN) is expected


def test_only_what_was_timed_is_faster() -> None:
    fused = [choice("backward_data", "relu", 1, 25), choice("backward_weight", "bias+relu", 1, 39)]
    assert are_faster(fused, PLAIN)
    for place in range(2):
        for untimed in ({"device_us": None}, {"torch_device_us": None}):
            doubted = [replace(each, **untimed) if i == place else each for i, each in enumerate(fused)]
            assert not are_faster(doubted, PLAIN)
    torchs = [fused[0], choice("backward_weight", "bias+relu", 1, 39, backend="torch")]
    assert not are_faster(torchs, PLAIN)


def test_one_gradient_alone_and_a_bias_without_an_activation() -> None:
    fused = choice("backward_weight", "bias", 12, 34)
    assert are_faster([None, fused], [None, PLAIN[1]])
    assert are_faster([PLAIN[0], fused], PLAIN)
    assert not are_faster([None, replace(fused, device_us=exactly(17))], [None, PLAIN[1]])


def test_pytorch_computes_a_derivative_once() -> None:
    fused = [choice("backward_data", "relu", 11, 25), choice("backward_weight", "bias+relu", 13, 39)]
    beside = with_shared_work(fused, PLAIN)
    assert [each.torch_device_us for each in beside if each is not None] == [exactly(20), exactly(39)]


def call_of(*, activation: str | None = "relu", residual: bool = False) -> Call:
    x, w, b = (torch.randn(shape, requires_grad=True) for shape in ((2, 8, 9, 9), (8, 1, 3, 3), (8,)))
    added = torch.randn(2, 8, 9, 9, requires_grad=True) if residual else None
    return Call(CONV2D, x, w, b, added, None, Request(False, 1, 1, 1, 8, activation, None, None))


def asked_for(call: Call, policy: Policy = Policy()) -> list[ConvProblem | None]:
    return fused_problems(call.problem(), Wanted.at(call), policy, CPU)


def test_where_no_kernel_fuses_it_nothing_is_asked() -> None:
    assert asked_for(call_of()) == []


@pytest.mark.parametrize(
    ("asked", "problems"),
    [
        ({}, ["relu", "bias+relu"]),
        ({"activation": None}, ["none", "bias"]),
        ({"activation": "silu"}, []),
        ({"residual": True}, []),
    ],
)
def test_what_is_asked_where_one_does(
    asked: dict[str, object], problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convwright.eager.gradients.fused_gradients._is_fused", lambda problem, device: True)
    call = call_of(**asked)  # type: ignore[arg-type]
    assert [str(each.epilogue) for each in asked_for(call) if each is not None] == problems
    assert asked_for(call, Policy(objective="device-time")) == asked_for(call)
    assert asked_for(call, Policy(objective="energy")) == []


def test_gradients_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_fused_gradients.py")
