"""The float64 reference of a problem of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from convwright.core.kinds.problem import Problem
from convwright.measuring.checking import copying, elements, linear, pointwise, pooling, reference, resizing
from convwright.measuring.checking.reference import Reference


@dataclass(frozen=True, slots=True)
class Checks:
    """The references for one kind of problem: on the whole output or large parts of it, at some elements, and the rough
    time of the former."""

    whole: Callable[..., Reference]
    sampled: Callable[..., Reference]
    us: Callable[[Any, torch.device], float]


_OF_KIND: Mapping[str, Checks] = {
    "conv": Checks(Reference.of, elements.sampled_convolution, reference.convolution_us),
    "linear": Checks(linear.whole, linear.sampled, linear.whole_us),
    "copy": Checks(copying.whole, copying.sampled, copying.whole_us),
    "pointwise": Checks(pointwise.whole, pointwise.sampled, pointwise.whole_us),
    "pool": Checks(pooling.whole, pooling.sampled, pooling.whole_us),
    "resize": Checks(resizing.whole, resizing.sampled, resizing.whole_us),
}


def whole_reference(problem: Problem, tensors: Mapping[Any, Tensor]) -> Reference:
    """Computed where the operands are; on slices if the whole would take too long or too much memory."""
    return _OF_KIND[problem.kind].whole(problem, tensors)


def sampled_reference(problem: Problem, tensors: Mapping[Any, Tensor], *, seed: int = 0) -> Reference:
    """At some elements of the output, in a few milliseconds."""
    return _OF_KIND[problem.kind].sampled(problem, tensors, seed=seed)


def reference_us(problem: Problem, device: torch.device) -> float:
    """A rough upper bound for the time of ``whole_reference``."""
    return _OF_KIND[problem.kind].us(problem, device)
