"""Group similar problems, so that a model is not tested on a problem similar to one it was fitted to."""

from __future__ import annotations

from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem


def origin_of(problem: Problem) -> str:
    """A name shared by problems whose sizes are the same or differ by less than a factor of two.

    Direction, layout, data type and epilogue do not matter: a network uses several of them for one layer, and a sweep
    has one problem in many sizes. Channels, filters and strides do.

    >>> def origin(text): return origin_of(ConvProblem.parse(text))
    >>> origin("mb8ic16ih220oc32kh3") == origin("mb8ic16ih221oc32kh3 dt:fp16 dir:backward_data")
    True
    >>> origin("mb8ic16ih220oc32kh3") == origin("mb8ic16ih220oc64kh3")
    False
    """
    if isinstance(problem, ConvProblem):
        exact = (problem.groups, problem.c, problem.k, *problem.taps, *problem.stride, *problem.dilation)
        rough = (problem.n, *problem.x.shape[2:])
    else:
        exact = tuple(sorted({spec.shape[1] for spec in problem.operands.values() if len(spec.shape) > 1}))
        rough = (problem.output.numel,)
    octaves = (size.bit_length() for size in rough)
    return f"{problem.kind} {','.join(map(str, exact))} {','.join(map(str, octaves))}"
