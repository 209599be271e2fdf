"""Expressions by PyTorch's own functions, each of which writes to given memory: the output, or a workspace.

PyTorch's usual calls allocate a tensor for each step. On a CPU the system first clears each large one, which may take
longer than the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate
from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand, steps
from convwright.core.kinds.pointwise import OUTPUT, PointwiseProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.graph.memory_plan import aligned
from convwright.tensors import allocator, carve, empty
from convwright.torch_operators import FUNCTIONS, REDUCTIONS

NAME = "into"


def _larger(a: Any, b: Any, *, out: Tensor) -> Tensor:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.maximum(a, b, out=out)
    return torch.clamp(a, min=b, out=out) if isinstance(a, Tensor) else torch.clamp(b, min=a, out=out)


def _smaller(a: Any, b: Any, *, out: Tensor) -> Tensor:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.minimum(a, b, out=out)
    return torch.clamp(a, max=b, out=out) if isinstance(a, Tensor) else torch.clamp(b, max=a, out=out)


def _from_tensor(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of two tensors. A number as first argument becomes a tensor without dimensions, which promotes no
    dtype."""

    def called(a: Any, b: Any, *, out: Tensor) -> Tensor:
        return function(a if isinstance(a, Tensor) else torch.tensor(a, dtype=torch.float64), b, out=out)

    return called


WRITING: Mapping[str, Callable[..., Tensor]] = {
    "add": _from_tensor(torch.add),
    "sub": _from_tensor(torch.sub),
    "mul": _from_tensor(torch.mul),
    "div": _from_tensor(torch.div),
    "maximum": _larger,
    "minimum": _smaller,
    "neg": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": partial(torch.clamp, min=0),
    "silu": torch_api.nn_functions.silu,
    "gelu": torch_api.nn_functions.gelu,
    "hardsigmoid": torch_api.nn_functions.hardsigmoid,
    "hardswish": torch_api.nn_functions.hardswish,
    **REDUCTIONS,
}


@dataclass(frozen=True, slots=True)
class _Program:
    """The operators in order, each with its arguments. A product that is only added to something has no step of its
    own where ``addcmul`` computes both."""

    arguments: Mapping[Apply, tuple[Expression, ...]]
    sums_of_products: frozenset[Apply]

    @classmethod
    def of(cls, problem: PointwiseProblem) -> _Program:
        order = [step for step in steps(problem.expression) if isinstance(step, Apply)]
        arguments = {step: step.arguments for step in order}
        sums = set[Apply]()
        for step in order:
            for product, other in zip(step.arguments, step.arguments[::-1], strict=True):
                if step not in sums and isinstance(product, Apply) and _is_added(problem, product, step, arguments):
                    arguments[step] = other, *arguments.pop(product)
                    sums.add(step)
        return cls(arguments, frozenset(sums))


def _is_added(
    problem: PointwiseProblem, product: Apply, step: Apply, arguments: Mapping[Apply, tuple[Expression, ...]]
) -> bool:
    """Whether ``step`` adds a product that is read nowhere else, and everything varies along channels that lie next to
    each other: only then is ``addcmul`` vectorised."""
    if step.operator != "add" or product.operator != "mul" or problem.y.layout is not Layout.NHWC:
        return False
    read = [each for given in arguments.values() for each in given]
    return read.count(product) == 1 and all(
        problem.shape_of(each)[1] == problem.y.shape[1]
        and (not isinstance(each, Operand) or problem.operands[each.name].strides[1] == 1)
        for each in {*step.arguments, *product.arguments} - {product}
    )


def refusal_reason(problem: PointwiseProblem) -> str | None:
    """Why some function cannot write its result to given memory; None if all can."""
    if len(stored := {spec.dtype for spec in problem.operands.values()}) > 1:
        return f"needs all operands in one dtype, got {', '.join(sorted(stored))}"
    for step in steps(problem.expression):
        if isinstance(step, Cast) or (isinstance(step, Apply) and step.operator not in WRITING):
            return f"cannot write {step.dtype if isinstance(step, Cast) else step.operator} into given memory"
    if isinstance(problem.expression, Operand):
        return "needs at least one operator, got a single operand"
    if problem.shape_of(problem.expression) != problem.y.shape:
        return "needs an operand of the output's size"
    if problem.groups > 1:
        return f"reduces only whole dimensions, got {problem.groups} groups"
    if problem.row and problem.row_size == 1:
        return "reduces only rows of at least two elements, got one"
    largest = max(prod(problem.shape_of(step)) for step in steps(problem.expression) if isinstance(step, Apply))
    if largest > problem.y.numel:
        return f"needs intermediate results no larger than the output, got one of {largest:,} elements"
    return None


def workspace_bytes(problem: PointwiseProblem) -> int:
    """Bytes of the intermediate results that have the output's size."""
    return Places.of(problem).buffers * aligned(_scratch(problem).span_bytes)


def overwrites(problem: PointwiseProblem) -> frozenset[str]:
    """The operands that have the output's layout and are not read after the first function writes there."""
    program, places = _Program.of(problem).arguments, Places.of(problem).of_step
    first = next(number for number, step in enumerate(program) if places.get(step) == 0)
    late = {argument for given in [*program.values()][first + 1 :] for argument in given}
    return frozenset(name for name in problem.elementwise if Operand(name) not in late)


@dataclass(frozen=True, slots=True)
class Places:
    """Where each step's result is stored: 0 is the output, then come ``buffers`` in the workspace. Results smaller than
    the output have memory in the plan and are not listed."""

    of_step: Mapping[Expression, int]
    buffers: int

    @classmethod
    def of(cls, problem: PointwiseProblem) -> Places:
        """A step overwrites values that no later step reads, including its own arguments. A reduction overwrites
        nothing, since it reads more than it writes."""
        program = _Program.of(problem).arguments
        order = list(program)
        large = [step for step in order if problem.shape_of(step) == problem.y.shape]
        last = {argument: place for place, given in enumerate(program.values()) for argument in given}
        places: dict[Expression, int] = {}
        most = 0
        for step in large:
            now = order.index(step)
            taken = {places[other] for other in places if last.get(other, -1) > now}
            free = next(place for place in range(len(order) + 1) if place not in taken)
            places[step] = 0 if step is order[-1] else free
            most = max(most, places[step])
        return cls(places, most)


def _scratch(problem: PointwiseProblem) -> TensorSpec:
    """An intermediate result with the output's layout."""
    y = problem.y
    return TensorSpec(y.shape, y.dtype, dense_strides(y.shape, Layout.NCHW if y.layout is Layout.STRIDED else y.layout))


class IntoPlan(RolePlan):
    """Calls one function after another. The output must not overlap operands other than ``overwrites``, since it holds
    intermediate results.

    Functions take their arguments by place in one list: operands, small results, numbers, output, workspace. So a call
    whose operands have new addresses, as many have in a network on a CPU, costs hardly more than a bound one.
    """

    def __init__(self, candidate: Candidate, device: torch.device) -> None:
        self.candidate = candidate
        problem: PointwiseProblem = candidate.problem
        program, places = _Program.of(problem), Places.of(problem)
        self._new, self._spec, self._buffers = allocator(problem.y, device), _scratch(problem), places.buffers
        self.workspace_bytes = workspace_bytes(problem)
        numbers, small = dict[Expression, float](), list[Apply]()
        for step in steps(problem.expression):
            if isinstance(step, Constant):
                numbers[step] = step.value
            elif isinstance(step, Apply) and (given := program.arguments.get(step)) is not None:
                if all(argument in numbers for argument in given):
                    exact = [torch.tensor(numbers[argument], dtype=torch.float64) for argument in given]
                    numbers[step] = FUNCTIONS[step.operator](*exact).item()
                elif step not in places.of_step:
                    small.append(step)
        self._names, self._numbers = [name for name, _ in problem.inputs], [*numbers.values()]
        self._small = [TensorSpec(problem.shape_of(step), self._spec.dtype) for step in small]
        order: list[Expression] = [*map(Operand, self._names), *small, *numbers]
        self._out = len(order)
        written = {step: self._out + place for step, place in places.of_step.items() if step not in numbers}
        place_of = {each: place for place, each in enumerate(order)} | written
        self._calls = [
            (_function(problem, program, step), [place_of[argument] for argument in given], place_of[step])
            for step, given in program.arguments.items() if step not in numbers
        ]  # fmt: skip

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        if OUTPUT not in operands:
            return lambda: self.compute(operands, workspace)
        return partial(self._run, self._values(operands, workspace))

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        given = operands if OUTPUT in operands else {**operands, OUTPUT: self._new()}
        return self._run(self._values(given, workspace))

    def _values(self, operands: Mapping[str, Tensor], workspace: Tensor | None) -> list[Any]:
        """Tensors and numbers, in the order of their places."""
        out = operands[OUTPUT]
        if workspace is None and self.workspace_bytes:
            workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=out.device)
        size = aligned(self._spec.span_bytes)
        return [
            *[operands[name] for name in self._names],
            *[empty(spec, out.device) for spec in self._small],
            *self._numbers,
            out,
            *[carve(workspace, place * size, self._spec) for place in range(self._buffers) if workspace is not None],
        ]

    def _run(self, values: list[Any]) -> Tensor:
        for function, given, written in self._calls:
            function(*[values[place] for place in given], out=values[written])
        result: Tensor = values[self._out]
        return result


def _function(problem: PointwiseProblem, program: _Program, step: Apply) -> Callable[..., object]:
    if step in program.sums_of_products:
        return torch.addcmul
    written = WRITING[step.operator]
    return partial(written, dim=problem.row, keepdim=True) if step.operator in REDUCTIONS else written
