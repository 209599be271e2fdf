"""Problems and operands that the tests of the weight's gradient share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backends.triton_interpreted.cases import CASES, VOLUMES, WIDE_GROUPS, Case
from convwright.backends.triton.weight_gradient.offers import algorithms, candidate_of, tiles
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.tensors import empty
from problem_space import oracle

ALGORITHM = "weight-gradient"
ALL_CASES = CASES | VOLUMES | WIDE_GROUPS
NAMES = [name for name in ALL_CASES if name != "3x3 without padding"]  # which is "pointwise" with more taps


def gradient(
    case: Case, dtype: DType, weight_layout: Layout = Layout.NHWC, x: Layout = Layout.NHWC, y: Layout = Layout.NHWC
) -> ConvProblem:
    problem = case.problem(dtype, x, y).asking(Direction.BACKWARD_WEIGHT)
    return replace(problem, w=problem.w.dense(weight_layout))


def with_gaps(problem: ConvProblem) -> ConvProblem:
    """Its weight's gradient is a slice of a larger one in every dimension."""
    wide = dense_strides(tuple(size + 1 for size in problem.w.shape), Layout.NCHW)
    return replace(problem, w=TensorSpec(problem.w.shape, problem.dtype, wide, problem.dtype.nbytes))


@dataclass(frozen=True)
class Operands:
    x: Tensor
    dy: Tensor
    out: Tensor

    @classmethod
    def of(cls, problem: ConvProblem, device: str, *, integers: bool) -> Operands:
        """Small integers, on which every arithmetic is exact, or normal numbers; the output is filled with NaN."""
        torch.manual_seed(0)

        def filled(spec: TensorSpec) -> Tensor:
            raw = torch.randint(-2, 3, spec.shape).double() if integers else torch.randn(spec.shape).double()
            return empty(spec, device).copy_(raw)

        return cls(filled(problem.x), filled(problem.y), empty(problem.w, device).fill_(float("nan")))

    def expected(self, problem: ConvProblem) -> Tensor:
        """In float64, by PyTorch's autograd."""
        zeros = torch.zeros(problem.w.shape, device=self.x.device)
        return oracle(problem, {Role.X: self.x, Role.W: zeros, Role.DY: self.dy})

    def computed(self, plan: Plan) -> Tensor:
        """With an output and a workspace full of NaN."""
        self.out.fill_(float("nan"))
        workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device=self.x.device)
        assert plan(self.x, self.dy, out=self.out, workspace=workspace) is self.out
        return self.out


def all_tiles(problem: ConvProblem, parts: int) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [
        candidate_of(problem, algorithm, replace(tile, parts=parts))
        for algorithm in algorithms(problem.dtype)
        for tile in tiles(algorithm)
    ]
