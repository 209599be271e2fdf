"""Upper bounds for the workspace of the classic API's matrix products on tensor cores of an absent GPU.

The classic API runs the engine that the graph API proposes first, and cuDNN's planner knows the engine's workspace. The
classic API also copies some operands. Sometimes it chooses another engine than the planner proposes for an absent
device. The engines listed here are those whose bound held for every recorded problem, with at least 20 problems each.
"""

from __future__ import annotations

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem, copied, rounded_up
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

# The numbers of engines are valid for one version of cuDNN only.
_VERSION = 919
_DENSE, _GROUPED, _DEPTHWISE = "dense", "grouped", "depthwise"
_FORWARD, _BACKWARD_DATA, _BACKWARD_WEIGHT = Direction
_NCHW, _NHWC = Layout.NCHW, Layout.NHWC
_ENGINES = {
    (_FORWARD, _NCHW, _DENSE): (0, 23, 28, 35, 38, 41, 46, 47, 48, 70),
    (_FORWARD, _NCHW, _GROUPED): (0, 22, 28, 35),
    (_FORWARD, _NCHW, _DEPTHWISE): (0, 28),
    (_FORWARD, _NHWC, _DENSE): (0, 23, 28, 38, 48),
    (_FORWARD, _NHWC, _GROUPED): (28,),
    (_FORWARD, _NHWC, _DEPTHWISE): (0, 28),
    (_BACKWARD_DATA, _NCHW, _DENSE): (2, 22, 28, 40, 43, 46, 56, 57, 58, 64, 65, 73, 74, 76),
    (_BACKWARD_DATA, _NCHW, _GROUPED): (0, 22, 57, 58, 64),
    (_BACKWARD_DATA, _NHWC, _DENSE): (2, 22, 28, 46, 56, 57, 58, 64, 65, 74, 76),
    (_BACKWARD_DATA, _NHWC, _GROUPED): (0, 57, 58, 60, 64, 65),
    (_BACKWARD_DATA, _NHWC, _DEPTHWISE): (0,),
    (_BACKWARD_WEIGHT, _NCHW, _DENSE): (0, 1, 9, 10, 30, 33, 34, 40, 47, 48, 49, 50),
    (_BACKWARD_WEIGHT, _NCHW, _GROUPED): (0, 30, 33, 34, 49, 50),
    (_BACKWARD_WEIGHT, _NCHW, _DEPTHWISE): (0, 10),
    (_BACKWARD_WEIGHT, _NHWC, _DENSE): (0, 9, 10, 30, 33, 34, 40, 47, 49, 50, 67),
    (_BACKWARD_WEIGHT, _NHWC, _GROUPED): (0, 34),
    (_BACKWARD_WEIGHT, _NHWC, _DEPTHWISE): (0,),
}
# For larger problems the records show other engines.
_MOST_TAPS, _MOST_BYTES = 20, 2**31
# In TF32 the classic API runs the next engine after these.
_PASSED_OVER = (20, 25)
# Engines that copy nothing that the planner does not count.
_COPYING_NOTHING_MORE = {_FORWARD: (0, 28), _BACKWARD_DATA: (0, 28), _BACKWARD_WEIGHT: (0, 34)}


def planned_bytes(problem: ConvProblem, device: DeviceFacts, arithmetic: Arithmetic) -> int | None:
    """An upper bound in bytes; None if the records show no bound."""
    given, library = ClassicProblem.of(problem, arithmetic), load()
    if isinstance(library, Missing) or library.version // 100 != _VERSION or problem.epilogue:
        return None
    if _is_a_matrix_product(given) or (given.groups > 1 and given.rank == 3):
        return None  # other kernels compute these, and split sums by no rule that the records show
    if max(given.taps) > _MOST_TAPS:
        return None
    first = _first_proposed(problem, device, arithmetic)
    if first is None or first.workspace_bytes is None:
        return None
    number = _number(first)
    if number not in _ENGINES.get((problem.direction, given.layout, _kind(given)), ()):
        return None
    more = 0 if number in _COPYING_NOTHING_MORE[problem.direction] else _copied_bytes(given)
    needed = first.workspace_bytes + more
    return needed if needed <= _MOST_BYTES else None


def _first_proposed(problem: ConvProblem, device: DeviceFacts, arithmetic: Arithmetic) -> Candidate | None:
    for engine in graph.offers(problem, device)[0]:
        if isinstance(engine, Candidate) and (arithmetic is not Arithmetic.TF32 or _number(engine) not in _PASSED_OVER):
            return engine
    return None


def _number(engine: Candidate) -> int:
    return graph.numbers(engine.algorithm, engine.config)[0]


def _is_a_matrix_product(given: ClassicProblem) -> bool:
    return max(given.taps) == 1 and max(given.padding) == 0


def _kind(given: ClassicProblem) -> str:
    return _DENSE if given.groups == 1 else _DEPTHWISE if given.c == 1 else _GROUPED


def _copied_bytes(given: ClassicProblem) -> int:
    """The classic API's own workspace: a zero bias, and the weight or its gradient in another layout."""
    direction, weight = given.problem.direction, given.groups * copied(given.w_bytes())
    if direction is _BACKWARD_WEIGHT:
        return weight
    mixed = len({spec.layout for spec in (given.problem.x, given.problem.w, given.problem.y)}) > 1
    return (weight if mixed else 0) + (_bias_bytes(given) if direction is _FORWARD else 0)


def _bias_bytes(given: ClassicProblem) -> int:
    if given.arithmetic is Arithmetic.TF32:
        return given.groups * rounded_up(given.k * 4, 1024)
    return given.groups * rounded_up(given.k * 4, 32 if given.groups == 1 else 256)
