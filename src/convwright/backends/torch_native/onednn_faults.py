"""Problems on which oneDNN, as PyTorch ships it for CPUs, crashes or errs. No search runs them.

Observed with PyTorch 2.13 and oneDNN 3.12 on an Intel Xeon with AMX. With these conditions a campaign of random
degenerate problems (``benchmarks/degenerate.py``) finds no others.
"""

from __future__ import annotations

import torch

from convwright import flags, torch_api
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem
from convwright.tensors import torch_dtype

_SERVED = (DType.FP32, DType.FP16, DType.BF16)
# A step of 715,827,883 did not finish within a minute; oneDNN's kernels count in C ints.
_MOST_STEP = 2**16
# Rows of one AMX product; other kernels compute narrower images.
_ROWS_OF_A_TILE = 16
_GARBAGE = "reads uninitialized memory in bf16"


def fault(problem: ConvProblem) -> str | None:
    """Why oneDNN must not compute ``problem``; None if no fault is known."""
    if problem.dtype not in _SERVED:
        return None
    axes, step = _seen(problem), max(*problem.stride, *problem.dilation)
    if step > _MOST_STEP:
        return f"loops over the stride or dilation, which must be at most {_MOST_STEP:,}, got {step:,}"
    reason = _crash(axes) if problem.direction is Direction.FORWARD else None
    return reason or (_fault_in_bf16(problem.direction, axes) if problem.dtype is DType.BF16 else None)


def _fault_in_bf16(direction: Direction, axes: tuple[Axis, ...]) -> str | None:
    if direction is Direction.BACKWARD_DATA:
        return _crash_without_products(axes) or _unwritten_depth(axes)
    garbage = _garbage_forward(axes) if direction is Direction.FORWARD else _garbage_backward_weight(axes[-1])
    return garbage or _flat_depth(axes)


def fault_of_pytorchs_call(problem: ConvProblem) -> str | None:
    """The same for PyTorch's own call, which uses oneDNN only for some problems."""
    reason = fault(problem) if flags.onednn_enabled() else None
    return reason if reason is not None and _is_pytorchs_choice(problem) else None


def _seen(problem: ConvProblem) -> tuple[Axis, ...]:
    """The dimensions as oneDNN sees them: PyTorch adds uneven padding to the input before."""
    if problem.symmetric_padding is not None:
        return problem.axes
    return tuple(
        Axis(axis.size + sum(axis.pad), axis.taps, axis.stride, (0, 0), axis.dilation) for axis in problem.axes
    )


def _crash(axes: tuple[Axis, ...]) -> str | None:
    for axis in axes:
        unmet = axis.out - axis.outputs_met()
        if unmet and axis.dilation > 1:
            return (
                f"crashes where outputs of a dilated filter read only padding, as {unmet} of {axis.out} along "
                "one dimension do"
            )
    return None


def _crash_without_products(axes: tuple[Axis, ...]) -> str | None:
    if any(axis.outputs_met() == 0 for axis in axes):
        return "crashes in bf16 where every tap along one dimension reads only padding"
    return None


def _garbage_forward(axes: tuple[Axis, ...]) -> str | None:
    *others, last = axes
    if last.out == 1 < min(last.stride, last.taps) and any(axis.out > 1 for axis in others):
        return f"{_GARBAGE} where an output with width 1 has stride {last.stride}"
    return None


def _garbage_backward_weight(last: Axis) -> str | None:
    if min(last.stride, last.taps) > 1 and (last.out == 1 or last.size < last.reach):
        return (
            f"{_GARBAGE} where the output has width 1 or the input is narrower than the filter, "
            f"got output {last.out}, input {last.size}, filter {last.reach} and stride {last.stride}"
        )
    return None


def _flat_depth(axes: tuple[Axis, ...]) -> str | None:
    if len(axes) == 3 and axes[0].size == 1 < axes[0].taps:
        return f"{_GARBAGE} where {axes[0].taps} taps read an input of depth 1"
    return None


def _unwritten_depth(axes: tuple[Axis, ...]) -> str | None:
    """If the windows are adjacent and leave the end of the input unread, its gradient is not set to 0."""
    depth, width = axes[0], axes[-1].size
    left = depth.size + depth.pad[0] - (depth.out - 1) * depth.stride - depth.reach
    follow_closely = depth.dilation == 1 < depth.stride <= depth.taps
    if len(axes) == 3 and left > 0 and follow_closely and width > _ROWS_OF_A_TILE:
        return f"leaves the gradient unwritten in bf16 where no output reads the last {left} of {depth.size} in depth"
    return None


def _is_pytorchs_choice(problem: ConvProblem) -> bool:
    """Whether PyTorch's call passes the problem to oneDNN."""
    sizes = (
        (*problem.x.shape[:2], *(axis.size for axis in _seen(problem))),
        problem.w.shape,
    )  # fmt: skip
    x, w = (torch.empty(shape, dtype=torch_dtype(problem.dtype)) for shape in sizes)
    nothing = (0,) * problem.rank
    padding = problem.symmetric_padding or nothing
    chosen = torch_api.select_conv_backend(
        x, w, None, problem.stride, padding, problem.dilation, False, nothing, problem.groups
    )
    return str(chosen.name) == "Mkldnn"
