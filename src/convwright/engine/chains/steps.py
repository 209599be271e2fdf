"""Layers → steps: for each layer its problem, what was chosen for it, and its constants as the kernel wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from convwright.core.direction import Role
from convwright.core.epilogue import Epilogue, activation_named
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem, per_axis
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.core.window import both_sides
from convwright.eager.decision import choices_for
from convwright.engine.chains.layer import ConvLayer
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import empty, spec_of
from convwright.tuning.session import Choice


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One layer made ready. It owns its weight, packed, and its bias."""

    choice: Choice
    plan: Plan
    weight: Tensor
    bias: Tensor | None

    @property
    def problem(self) -> ConvProblem:
        posed: ConvProblem = self.choice.candidate.problem
        return posed

    def run(self, x: Tensor, out: Tensor, workspace: Tensor | None) -> None:
        self.plan(x, self.weight, self.bias, None, out, workspace)


def steps_of(
    layers: Sequence[ConvLayer], example: Tensor, policy: Policy, algorithms: Sequence[str | None]
) -> tuple[Step, ...]:
    """Choose for every layer under ``policy``, or take what ``algorithms`` names for it, and pack its weight."""
    facts = device_facts(example.device)
    steps = []
    for layer, problem, algorithm in zip(layers, problems_of(layers, example), algorithms, strict=True):
        choice = choices_for(problem, facts, policy, algorithm).captured
        plan = choice.plan()
        bias = None if layer.bias is None else _own(layer.bias, problem.operands[Role.BIAS])
        steps.append(Step(choice, plan, plan.prepare(_own(layer.weight, problem.w)), bias))
    return tuple(steps)


def problems_of(layers: Sequence[ConvLayer], example: Tensor) -> list[ConvProblem]:
    """Each layer's problem on the output of the one before it; bad layers are refused here, by their number.

    All activations and weights lie alike: channels last where the example or any weight does.
    """
    weights = [layer.weight for layer in layers]
    last = any(spec_of(tensor).layout is Layout.NHWC for tensor in (example, *weights))
    layout = Layout.NHWC if last else Layout.NCHW
    x = spec_of(example).dense(layout)
    problems: list[ConvProblem] = []
    for number, layer in enumerate(layers):
        try:
            _check_tensors(layer, example)
            problems.append(_problem(layer, x, layout))
        except BadInput as error:
            raise BadInput(f"layer {number}: {error}") from None
        x = problems[-1].y
    return problems


def _problem(layer: ConvLayer, x: TensorSpec, layout: Layout) -> ConvProblem:
    w = spec_of(layer.weight).dense(layout)
    rank = len(w.shape) - 2
    stride, dilation = per_axis("stride", layer.stride, rank), per_axis("dilation", layer.dilation, rank)
    return ConvProblem.of_specs(
        x,
        w,
        stride=stride,
        padding=both_sides(layer.padding, w.shape[2:], stride, dilation),
        dilation=dilation,
        layout=layout,
        groups=layer.groups,
        epilogue=Epilogue(bias=layer.bias is not None, activation=activation_named(layer.activation)),
    )


def _check_tensors(layer: ConvLayer, example: Tensor) -> None:
    for name, tensor in (("weight", layer.weight), ("bias", layer.bias)):
        if tensor is not None and (tensor.dtype, tensor.device) != (example.dtype, example.device):
            raise BadInput(
                f"`{name}` must be {example.dtype} on {example.device} like the example, "
                f"got {tensor.dtype} on {tensor.device}"
            )


def _own(tensor: Tensor, spec: TensorSpec) -> Tensor:
    # A plan may keep a weight as it is; then a change of the model would be seen, but only through some plans.
    return empty(spec, tensor.device).copy_(tensor.detach())
