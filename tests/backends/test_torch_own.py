"""PyTorch's own call as a plan: what it gives lies as the problem says, so that what this takes is part of its time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.backends import registry
from convwright.backends.torch_native.backend import TorchNative
from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Role
from convwright.core.fusing import rare_operands
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import lies_as
from convwright.tuning.trials.trial import Bench, Trial
from problem_space import operands, oracle

SLICE = "mb2ic4ih8oc4kh3ph1 tag:x=nchw,w=nchw,y=512/64/8/1"  # the half of a buffer's channels
MIXED = "mb2ic4ih8oc4kh3ph1 tag:x=nchw,w=nchw,y=nhwc"


@pytest.mark.parametrize(
    "text",
    [
        MIXED,
        SLICE,
        f"{MIXED} ep:bias+relu",
        f"{MIXED} ep:residual+bias+relu",
        "mb2ic4ih8oc4kh3ph1 tag:x=nhwc,w=nchw,y=nchw dir:backward_data",
        "mb2ic4ih8oc4kh3ph1 tag:x=nchw,w=nhwc,y=nchw dir:backward_weight",
        "mb2ic4ih8oc4kh3ph1 tag:x=nhwc,w=nchw,y=nchw dir:backward_data ep:relu",
    ],
)
def test_the_output_lies_as_the_problem_says(text: str) -> None:
    problem = ConvProblem.parse(text)
    given = operands(problem, 0)
    plan = registry.backend("torch").build(torch_candidate(problem), device_facts("cpu"))
    first, second = (given[role] for role in problem.direction.operands)
    rare = {role.value: given[role] for role in rare_operands(problem)}
    made = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), **rare)
    assert lies_as(made, problem.output)
    assert torch.equal(made, oracle(problem, given).float())


def test_what_is_timed_lies_so_too() -> None:
    problem = ConvProblem.parse(SLICE)
    bench = Bench(problem, device_facts("cpu"), Mode.QUICK, seed=1)
    assert lies_as(Trial(torch_candidate(problem, cpu=True), bench).call()(), problem.y)


def test_a_chain_of_plans_runs_whichever_is_chosen() -> None:
    first = cw.plan(MIXED, device="cpu", algorithm="torch/default")
    second = cw.plan("mb2ic4ih8oc4kh3ph1 tag:nhwc", device="cpu", algorithm="torch/default")
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)
    y = first(x, first.prepare(w))
    w_last = w.contiguous(memory_format=torch.channels_last)
    again = second(y, second.prepare(w_last))
    expected = torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, w, padding=1), w, padding=1)
    torch.testing.assert_close(again, expected, rtol=1e-4, atol=1e-4)


def test_a_function_gives_what_pytorch_lays() -> None:
    """Bare, it copies nothing."""
    made: list[Tensor] = []

    def compute(*_: Tensor | None) -> Tensor:
        made.append(torch.randn(2, 4, 8, 8))
        return made[-1]

    plan = TorchPlan(torch_candidate(ConvProblem.parse(MIXED)), compute)
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)
    assert plan.bare(x, w) is made[-1]
    assert torch.equal(plan(x, w), made[-1])
    assert plan(x, w) is not made[-1]


def test_pytorchs_call_in_tf32_is_refused_where_cudnn_computes_it_wrong() -> None:
    """Seen on an H200 of inputs' gradients where an output meets padding alone."""
    here = replace(profile("h200"), torch_name="cuda:0")
    offers = {
        text: {type(offer) for offer in TorchNative().candidates(ConvProblem.parse(text), here, Policy())
               if offer.id == "torch/default[tf32=on]"}
        for text in ("ic2oc33ih3iw17kh3kw2sh2sw1pw20dw16 dir:backward_data", "ic2oc33ih9kh3ph1 dir:backward_data")
    }  # fmt: skip
    assert list(offers.values()) == [{Refusal}, {Candidate}]
