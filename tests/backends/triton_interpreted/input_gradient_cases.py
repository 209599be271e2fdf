"""Problems and operands that the tests of an input's gradient share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.triton_interpreted.cases import Case
from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.backends.triton.gemm.tiles import tiles
from convwright.backends.triton.input_gradient.offers import KERNEL, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.tensors import empty
from problem_space import oracle

_SAME = ((1, 1), (1, 1))
STRIDED = {
    "3x3": Case((2, 12, 5, 6), (40, 12, 3, 3), (2, 2), _SAME),
    "stem": Case((1, 3, 9, 11), (10, 3, 7, 7), (2, 2), ((3, 3), (3, 3))),
    "1x1": Case((2, 17, 5, 6), (36, 17, 1, 1), (2, 2)),
    "2x2": Case((2, 10, 8, 6), (12, 10, 2, 2), (2, 2)),
    "strides 2 and 3": Case((1, 9, 7, 8), (32, 9, 3, 3), (2, 3), _SAME),
    "dilated where it is not strided": Case((1, 6, 9, 8), (10, 6, 3, 3), (1, 2), ((2, 2), (1, 0)), (2, 1)),
    "filter smaller than the stride": Case((1, 7, 8, 9), (35, 7, 2, 1), (3, 2)),
    "phases in another order than their taps": Case((1, 5, 6, 7), (8, 5, 5, 5), (3, 3), ((2, 2), (2, 2))),
    "asymmetric padding": Case((2, 16, 7, 8), (8, 16, 3, 4), (2, 3), ((0, 2), (3, 1))),
    "padding beyond the filter": Case((1, 4, 5, 6), (6, 4, 2, 2), (2, 2), ((3, 2), (2, 3))),
    "rows and columns that no window reaches": Case((1, 6, 7, 8), (9, 6, 3, 2), (3, 3)),
    "fewer rows than phases": Case((2, 4, 2, 4), (5, 4, 1, 3), (4, 2), ((1, 1), (0, 0))),
    "flipped": Case((1, 12, 6, 7), (7, 12, 3, 2), (2, 2), _SAME, flip=True),
    "slice of a wider buffer": Case((2, 20, 5, 6), (11, 20, 3, 3), (2, 2), _SAME, slack=5),
    "1-D": Case((2, 20, 30), (6, 20, 5), (2,), ((1, 3),), (1,)),
    "one channel in and out": Case((1, 1, 9, 9), (1, 1, 3, 3), (2, 2), _SAME),
    "many input channels": Case((1, 40, 3, 2), (33, 40, 3, 2), (2, 1), _SAME),
    "stride 2 and dilation 3": Case((1, 5, 11, 12), (9, 5, 3, 3), (2, 2), ((3, 3), (2, 4)), (3, 3)),
    "stride 3 and dilation 2, flipped": Case((1, 6, 12, 9), (8, 6, 4, 2), (3, 3), ((2, 1), (0, 3)), (2, 2), flip=True),
    "groups": Case((2, 36, 5, 6), (24, 12, 3, 3), (2, 2), _SAME, groups=3),
    "groups that fill no tile": Case((1, 18, 6, 5), (34, 9, 2, 3), (2, 1), ((0, 2), (1, 0)), slack=3, groups=2),
    "volume": Case((1, 10, 4, 5, 4), (12, 10, 3, 3, 3), (2, 2, 2), (_SAME[0],) * 3, (1, 1, 1)),
    "any window of a volume": Case(
        (1, 5, 7, 4, 6), (9, 5, 2, 3, 2), (3, 1, 2), ((3, 0), (1, 2), (1, 1)), (2, 2, 1), flip=True, slack=2
    ),
    "groups of a volume": Case(
        (2, 16, 3, 3, 5), (18, 8, 2, 1, 3), (1, 1, 2), ((1, 0), (0, 0), (1, 1)), (1, 1, 1), groups=2
    ),
    "planes that no tap reaches": Case((1, 8, 5, 2, 3), (8, 8, 1, 2, 2), (3, 2, 1), ((0, 0),) * 3, (1, 1, 1)),
}  # fmt: skip


def gradient(case: Case, dtype: DType, dy: Layout = Layout.NHWC, dx: Layout = Layout.NHWC) -> ConvProblem:
    return case.problem(dtype, x=dx, y=dy).asking(Direction.BACKWARD_DATA)


@dataclass(frozen=True)
class Operands:
    dy: Tensor
    w: Tensor
    out: Tensor

    @classmethod
    def of(cls, problem: ConvProblem, device: str, *, integers: bool) -> Operands:
        """Small integers, on which every arithmetic is exact, or normal numbers; the output is filled with NaN."""
        torch.manual_seed(0)

        def filled(spec: TensorSpec) -> Tensor:
            raw = torch.randint(-2, 3, spec.shape).double() if integers else torch.randn(spec.shape).double()
            return empty(spec, device).copy_(raw)

        return cls(filled(problem.y), filled(problem.w), empty(problem.x, device).fill_(float("nan")))

    def expected(self, problem: ConvProblem) -> Tensor:
        """In float64, by PyTorch's autograd."""
        zeros = torch.zeros(problem.x.shape, dtype=torch.float64, device=self.w.device)
        return oracle(problem, {Role.X: zeros, Role.W: self.w, Role.DY: self.dy})

    def computed(self, plan: Plan) -> Tensor:
        self.out.fill_(float("nan"))
        assert plan(self.dy, plan.prepare(self.w), out=self.out) is self.out
        return self.out


def all_tiles(problem: ConvProblem) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [
        candidate_of(problem, algorithm, tile)
        for algorithm in algorithms_of(KERNEL, problem.dtype)
        for tile in tiles(algorithm.arithmetic, split=algorithm.split)
    ]
