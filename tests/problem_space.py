"""The space of problems for property tests: Hypothesis strategies, operands, and PyTorch in float64 as the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.fusing import rare_operands
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.tensors import torch_dtype

Value = TypeVar("Value")
CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
EXACT = (Activation.NONE, Activation.RELU)  # these give the exact result on integers
ACTIVATE = {
    Activation.NONE: lambda y: y,
    Activation.RELU: lambda y: y.clamp(min=0),
    Activation.SILU: lambda y: y / (1 + torch.exp(-y)),
    Activation.GELU: lambda y: y * (1 + torch.erf(y / 2**0.5)) / 2,
    Activation.HARDSWISH: lambda y: y * (y + 3).clamp(0, 6) / 6,
}


def specs(shape: tuple[int, ...], dtype: DType) -> st.SearchStrategy[TensorSpec]:
    """Dense either way, or with gaps between the elements of some dimension, as a slice of a larger buffer has."""

    def with_gaps(layout: Layout, gaps: list[int]) -> TensorSpec:
        larger = tuple(size + gap for size, gap in zip(shape, gaps, strict=True))
        return TensorSpec(shape, dtype, dense_strides(larger, layout))

    layouts = st.sampled_from([Layout.NCHW, Layout.NHWC])
    gaps = st.lists(st.integers(0, 1), min_size=len(shape), max_size=len(shape))
    return st.builds(with_gaps, layouts, st.just([0] * len(shape)) | gaps)


def directions(dtype: DType) -> st.SearchStrategy[Direction]:
    """Those in which operands of ``dtype`` are computed."""
    return st.just(Direction.FORWARD) if dtype.narrow else st.sampled_from(Direction)


@st.composite
def problems(
    draw: st.DrawFn,
    dtype: DType = DType.FP32,
    least_images: int = 0,
    activations: Sequence[Activation] = EXACT,
    most_stride: int = 3,
    most_room: int = 3,
    most_rank: int = 3,
    most_groups: int = 3,
    channels: Sequence[int] = (1, 2, 3),
    *,
    rare: bool = False,
) -> ConvProblem:
    """``most_room`` is by how many elements at most the input is larger than the filter needs, ``channels`` are what a
    group may have. ``rare`` are epilogues that scale, accumulate, or belong to a gradient."""
    rank = draw(st.integers(1, most_rank))

    def per_axis(values: st.SearchStrategy[Value]) -> tuple[Value, ...]:
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    groups = draw(st.integers(1, most_groups))
    taps = per_axis(st.integers(1, 3))
    dilation = per_axis(st.integers(1, 2))
    padding = per_axis(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    least = [max(1, (r - 1) * d + 1 - sum(p)) for r, d, p in zip(taps, dilation, padding, strict=True)]
    x = (
        draw(st.integers(least_images, 4)),
        groups * draw(st.sampled_from(channels)),
        *(size + draw(st.integers(0, most_room)) for size in least),
    )
    w = (groups * draw(st.sampled_from(channels)), x[1] // groups, *taps)
    problem = ConvProblem.of_specs(
        draw(specs(x, dtype)),
        draw(specs(w, dtype)),
        stride=per_axis(st.integers(1, most_stride)),
        padding=padding,
        dilation=dilation,
        groups=groups,
        direction=draw(directions(dtype)),
        flip=draw(st.booleans()),
    )
    if problem.direction is Direction.FORWARD:
        epilogue = Epilogue(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(activations)))
        problem = replace(problem, epilogue=epilogue)
    if rare:
        problem = replace(problem, epilogue=draw(rare_epilogues(problem, activations)))
    return replace(problem, y=draw(specs(problem.y.shape, draw(st.sampled_from(dtype.outputs)))))


def rare_epilogues(problem: ConvProblem, activations: Sequence[Activation]) -> st.SearchStrategy[Epilogue]:
    forward, weight = Direction.FORWARD, Direction.BACKWARD_WEIGHT
    return st.builds(
        Epilogue,
        residual=st.booleans() if problem.direction is forward else st.just(False),
        bias=st.booleans() if problem.direction in (forward, weight) else st.just(False),
        activation=st.sampled_from(activations),
        scale=st.booleans(),
        accumulate=st.booleans(),
    )


def tensor(spec: TensorSpec, fill: float = float("nan")) -> Tensor:
    """Memory of ``spec`` that does not begin where its storage begins."""
    numel = spec.span_bytes // spec.dtype.nbytes
    fill = -128 if spec.dtype is DType.INT8 else fill
    storage = torch.full((numel + 4,), fill, dtype=torch_dtype(spec.dtype))
    return storage[4:].as_strided(spec.shape, spec.strides)


def operands(problem: ConvProblem, seed: int, *, integers: bool = True) -> dict[Role, Tensor]:
    """Inputs by role: small integers, whose sums are exact, or normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for role, spec in problem.operands.items():
        if role not in problem.outputs:
            values = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
            made[role] = tensor(spec).copy_(values.mul(2).round() if integers else values)
    return made


def oracle(problem: ConvProblem, given: dict[Role, Tensor]) -> Tensor:
    """The result in float64, by PyTorch and its autograd."""
    wide = {role: value.double().detach() for role, value in given.items()}
    x = wide.get(Role.X, torch.zeros(problem.x.shape, dtype=torch.float64)).requires_grad_()
    w = wide.get(Role.W, torch.zeros(problem.w.shape, dtype=torch.float64)).requires_grad_()
    padded = F.pad(x, [side for pair in reversed(problem.padding) for side in pair])
    taps = w.flip([*range(2, w.dim())]) if problem.flip else w
    y = CONVOLVE[problem.rank](padded, taps, None, problem.stride, 0, problem.dilation, problem.groups)
    if Role.SCALE in wide:
        y = y * wide[Role.SCALE].view(-1, *[1] * problem.rank)
    before = wide.get(Role.BEFORE, 0.0)
    if problem.direction is not Direction.FORWARD:
        wanted = x if problem.direction is Direction.BACKWARD_DATA else w
        return torch.autograd.grad(y, wanted, ahead(problem, wide))[0] + before
    if Role.RESIDUAL in wide:
        y = y + wide[Role.RESIDUAL]
    if Role.BIAS in wide:
        y = y + wide[Role.BIAS].view(-1, *[1] * problem.rank)
    return ACTIVATE[problem.epilogue.activation](y).detach() + before


def ahead(problem: ConvProblem, given: dict[Role, Tensor]) -> Tensor:
    """In float64 the gradient ahead of the activation."""
    dy = given[Role.DY].double()
    if Role.Z not in given:
        return dy
    z = given[Role.Z].double().detach().requires_grad_()
    activated = z.relu() if problem.epilogue.activation is Activation.RELU else ACTIVATE[problem.epilogue.activation](z)
    return torch.autograd.grad(activated, z, dy)[0]


def run(plan: Plan, given: dict[Role, Tensor], *, own_workspace: bool = False) -> Tensor:
    """Call ``plan`` on an output and a workspace full of NaN; the workspace is exactly as large as was said.

    A bias's gradient goes to ``given[Role.DB]``, which is made unless it is there.
    """
    problem = plan.candidate.problem
    workspace = None if own_workspace else torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    first, second = (given[role] for role in problem.direction.operands)
    if Role.W in given:
        second = plan.prepare(second)
    out = tensor(problem.output)
    if Role.BEFORE in given:
        out.copy_(given[Role.BEFORE])
    if Role.DB in problem.outputs:
        given.setdefault(Role.DB, tensor(problem.operands[Role.DB]))
    rare = {str(role): given[role] for role in rare_operands(problem)}
    result = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), out, workspace, **rare)
    assert result.data_ptr() == out.data_ptr()
    value = out.clone()
    out.fill_(float("nan"))
    storage = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage())
    assert storage.isnan().all(), "memory between the elements of the output was written to"
    return value
