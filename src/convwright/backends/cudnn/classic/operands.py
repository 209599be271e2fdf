"""Operands and layouts that the classic API supports. Pure: also used for devices that are not in this machine."""

from __future__ import annotations

from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.fusing import why_not_fused
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec

_LARGEST_INT = 2**31 - 1
_FUSED = (Activation.NONE, Activation.RELU)
_ALONE = (Epilogue(), Epilogue(accumulate=True))


def objection(problem: ConvProblem) -> str | None:
    """Why the classic API has no descriptors for ``problem``; None if it has."""
    specs = (problem.x, problem.w, problem.y)
    if problem.dtype.narrow:
        return f"{problem.dtype} is computed only by engines of cuDNN's graph API"
    if not is_alone(problem) and (reason := why_not_fused(problem)) is not None:
        return reason
    if problem.epilogue.activation not in _FUSED:
        return f"the classic API can fuse relu, not {problem.epilogue.activation}"
    if problem.symmetric_padding is None:
        return f"the classic API needs equal padding on both sides, got {problem.padding}; pad `input` first"
    if any(spec.numel == 0 for spec in specs):
        return "cuDNN has no descriptors for empty tensors"
    if any(number > _LARGEST_INT for spec in specs for number in (*spec.shape, *spec.strides)):
        return f"cuDNN's descriptors hold sizes and strides up to {_LARGEST_INT:,} elements"
    if any(size > 1 and not stride for spec in specs for size, stride in zip(spec.shape, spec.strides, strict=True)):
        return "cuDNN takes no operand that repeats its elements (a stride of 0)"
    layout = filter_layout(problem)
    if problem.direction is Direction.BACKWARD_WEIGHT and not is_dense(problem.w, layout):
        return f"writes the weight's gradient dense in {layout}, got strides {problem.w.strides}"
    return None


def is_alone(problem: ConvProblem) -> bool:
    """True for a plain convolution, which can also be added to the output's content."""
    return problem.epilogue in _ALONE


def epilogue_objection(problem: ConvProblem, *, fuses: bool) -> str | None:
    """Why an algorithm cannot compute the epilogue; ``fuses``: it computes epilogues."""
    if not fuses and not is_alone(problem):
        return f"computes only the convolution, not {problem.epilogue}; `unfuse` runs that in a separate kernel"
    return None


def is_dense(spec: TensorSpec, layout: Layout) -> bool:
    """True if ``spec`` is dense in ``layout``, even if it is also dense in another one."""
    return spec.strides == spec.dense(layout).strides


def filter_layout(problem: ConvProblem) -> Layout:
    """The layout in which the weight must be dense: the same as the activations, since cuDNN does not mix layouts."""
    activations = (problem.x, problem.y)
    innermost = all(spec.shape[1] == 1 or spec.strides[1] == 1 for spec in activations)
    return Layout.NHWC if innermost and any(spec.layout is not Layout.NCHW for spec in activations) else Layout.NCHW
