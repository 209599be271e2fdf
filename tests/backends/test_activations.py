"""What cannot fuse an activation says so by its name; PyTorch and the reference compute all of them."""

from __future__ import annotations

import pytest
import torch

from backends.interpreted import passes_in_the_interpreter
from convwright.backends.cudnn.classic import operands as classic_operands
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.registry import backend
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.epilogue import Activation
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.measuring.checking.reference import Reference
from problem_space import operands, oracle, run

CPU = DeviceFacts("this CPU", "cpu", "any", "cpu")
NEW = [Activation.SILU, Activation.GELU, Activation.HARDSWISH]


def fused(activation: Activation) -> ConvProblem:
    return ConvProblem.parse(f"mb2ic16ih9oc16kh3ph1 dt:fp16 tag:nhwc ep:residual+bias+{activation}")


@pytest.mark.parametrize(
    ("activation", "reason"),
    [
        (
            Activation.SILU,
            "cuDNN compiles what fuses silu at run time, so NVIDIA H200 must be in this machine",
        ),
        (
            Activation.GELU,
            "cuDNN compiles what fuses gelu at run time, so NVIDIA H200 must be in this machine",
        ),
        (Activation.HARDSWISH, "cuDNN can fuse relu, gelu, silu, not hardswish"),
    ],
)
def test_cudnns_graph_refuses_by_name(activation: Activation, reason: str) -> None:
    assert list(graph.candidates(fused(activation), profile("h200"), Policy())) == [Refusal("cudnn/graph", reason)]


@pytest.mark.parametrize("activation", NEW)
def test_cudnns_classic_api_refuses_by_name(activation: Activation) -> None:
    assert str(activation) in (classic_operands.objection(fused(activation)) or "")
    assert classic_operands.objection(fused(Activation.RELU)) is None


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("name", ["torch", "reference"])
def test_torch_and_the_reference_compute_it(name: str, activation: Activation) -> None:
    problem = ConvProblem.parse(f"mb2ic3ih7oc4kh3ph1 ep:residual+bias+{activation}")
    offered = [offer for offer in backend(name).candidates(problem, CPU, Policy()) if isinstance(offer, Candidate)]
    given = operands(problem, seed=1, integers=False)
    assert offered
    for candidate in offered:
        result = run(backend(name).build(candidate, CPU), given)
        torch.testing.assert_close(result.double(), oracle(problem, given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", Activation)
def test_the_right_answer_has_the_activation_and_its_scale_has_not(activation: Activation) -> None:
    problem = ConvProblem.parse(f"mb2ic3ih7oc4kh3ph1 ep:bias+{activation}")
    given = operands(problem, seed=2, integers=False)
    found = Reference.of(problem, given)
    torch.testing.assert_close(found.y64, oracle(problem, given), rtol=1e-12, atol=1e-12)
    linear = Reference.of(ConvProblem.parse("mb2ic3ih7oc4kh3ph1 ep:bias"), given)
    assert torch.equal(found.scale, linear.scale)


def test_torch_differentiates_it() -> None:
    problem = ConvProblem.parse("mb2ic3ih7oc4kh3ph1 ep:silu")
    candidate = next(iter(backend("torch").candidates(problem, CPU, Policy())))
    given = operands(problem, seed=3, integers=False)
    w = given[Role.W].requires_grad_()
    assert isinstance(candidate, Candidate)
    assert candidate.id == "torch/default"
    y = backend("torch").build(candidate, CPU)(given[Role.X], w)
    (dw,) = torch.autograd.grad(y.sum(), w)
    linear = torch.nn.functional.conv2d(given[Role.X], w, padding=1)
    (expected,) = torch.autograd.grad((linear * torch.sigmoid(linear)).sum(), w)
    torch.testing.assert_close(dw, expected, rtol=1e-5, atol=1e-5)


def test_our_kernels_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_activations.py")
