"""Problems, data and the float64 oracle that the tests of our Triton kernels share, in the interpreter and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, nan, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Offer
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.tensors import activate, empty, torch_dtype
from problem_space import CONVOLVE


@dataclass(frozen=True)
class Case:
    """A convolution by its shapes; padding is given per side, so it may be asymmetric."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    dilation: tuple[int, ...] = (1, 1)
    epilogue: str = "none"
    flip: bool = False
    slack: int = 0
    groups: int = 1

    def problem(self, dtype: DType, x: Layout = Layout.NHWC, y: Layout = Layout.NHWC) -> ConvProblem:
        """With ``slack``, input and output are slices of channels from buffers that are so much wider."""
        problem = ConvProblem.of_specs(
            _spec(self.x, dtype, self.slack, x), _spec(self.w, dtype, 0), stride=self.stride, padding=self.padding,
            dilation=self.dilation, layout=Layout.NHWC, epilogue=Epilogue.parse(self.epilogue), flip=self.flip,
            groups=self.groups,
        )  # fmt: skip
        return replace(problem, y=_spec(problem.y.shape, dtype, self.slack, y))


def _spec(shape: tuple[int, ...], dtype: DType, slack: int, layout: Layout = Layout.NHWC) -> TensorSpec:
    wide = (shape[0], shape[1] + slack, *shape[2:])
    return TensorSpec(shape, dtype, dense_strides(wide, layout), dtype.nbytes if slack else 16)


_SAME = ((1, 1), (1, 1))
_ALL = "residual+bias+relu"
CASES = {
    "pointwise": Case((2, 32, 5, 7), (24, 32, 1, 1)),
    "pointwise, strided": Case((1, 40, 9, 8), (17, 40, 1, 1), stride=(2, 3)),
    "3x3": Case((2, 64, 6, 7), (40, 64, 3, 3), padding=_SAME, epilogue="bias+relu"),
    "3x3 without padding": Case((1, 48, 7, 6), (33, 48, 3, 3), epilogue=_ALL),
    "odd channels": Case((1, 19, 7, 9), (5, 19, 3, 2), padding=_SAME, epilogue=_ALL),
    "one channel in and out": Case((1, 1, 9, 9), (1, 1, 3, 3), padding=_SAME, epilogue="bias"),
    "stem": Case((1, 3, 15, 17), (20, 3, 7, 7), stride=(2, 2), padding=((3, 3), (3, 3)), epilogue="bias+relu"),
    "dilated": Case((1, 10, 13, 12), (9, 10, 3, 3), padding=((4, 4), (3, 3)), dilation=(4, 3), epilogue="relu"),
    "asymmetric padding": Case((2, 16, 6, 5), (8, 16, 3, 4), padding=((0, 2), (3, 1)), stride=(2, 1)),
    "padded on one side only": Case((1, 32, 4, 4), (8, 32, 2, 2), padding=((0, 1), (0, 0))),
    "flipped": Case((1, 12, 6, 6), (7, 12, 3, 2), padding=_SAME, flip=True),
    "slice of a wider buffer": Case((2, 20, 5, 6), (11, 20, 3, 3), padding=_SAME, epilogue=_ALL, slack=5),
    "1-D": Case((2, 20, 30), (6, 20, 5), (2,), ((1, 3),), (2,), "bias"),
    "many output channels": Case((1, 32, 3, 3), (150, 32, 3, 3), padding=_SAME, epilogue="residual+relu"),
}  # fmt: skip

_SAME_3D = ((1, 1), (1, 1), (1, 1))
VOLUMES = {
    "3x3x3": Case((1, 18, 3, 3, 4), (9, 18, 3, 3, 3), (1, 1, 1), _SAME_3D, (1, 1, 1), "bias+relu"),
    "1x3x3": Case((1, 20, 3, 6, 5), (9, 20, 1, 3, 3), (1, 1, 1), ((0, 0), (1, 1), (1, 1)), (1, 1, 1), slack=3),
    "3x1x1, strided": Case((1, 33, 7, 3, 4), (10, 33, 3, 1, 1), (2, 1, 1), ((1, 1), (0, 0), (0, 0)), (1, 1, 1), _ALL),
    "any window of a volume": Case(
        (1, 10, 7, 6, 9), (7, 10, 2, 3, 2), (2, 1, 2), ((3, 0), (0, 2), (1, 1)), (3, 1, 2), _ALL, flip=True, slack=5
    ),
    "one plane of a volume": Case((2, 9, 3, 4, 5), (6, 9, 3, 2, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), flip=True),
    "one plane far in front": Case((1, 8, 1, 3, 4), (5, 8, 2, 1, 2), (4, 1, 1), ((3, 2), (0, 0), (0, 0)), (2, 1, 1)),
    "padded behind only": Case((1, 12, 2, 3, 3), (6, 12, 2, 2, 2), (1, 1, 1), ((0, 1), (0, 1), (0, 0)), (1, 1, 1)),
}  # fmt: skip


# Enough channels in each group for a matrix product.
WIDE_GROUPS = {
    "groups": Case((2, 64, 5, 6), (32, 16, 3, 3), padding=_SAME, epilogue=_ALL, groups=4),
    "groups that fill no tile": Case(
        (1, 60, 6, 5), (27, 20, 2, 3), (2, 1), ((0, 2), (1, 0)), epilogue="residual+bias", slack=4, groups=3
    ),
    "groups of several tiles": Case((1, 16, 3, 4), (180, 8, 1, 1), groups=2, epilogue="bias+relu"),
    "groups in 1-D, flipped": Case((2, 27, 19), (24, 9, 3), (2,), ((2, 1),), (2,), "bias", flip=True, groups=3),
    "groups of a volume": Case(
        (1, 24, 3, 4, 5), (16, 12, 2, 2, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), (1, 1, 1), _ALL, groups=2
    ),
}  # fmt: skip


# Few output channels in each group.
GROUPED = {
    "depthwise": Case((2, 3, 5, 37), (3, 1, 3, 3), padding=_SAME, epilogue=_ALL, groups=3),
    "depthwise, strided and dilated": Case((1, 3, 9, 41), (3, 1, 3, 3), (2, 2), ((2, 2), (3, 1)), (2, 2), groups=3),
    "two outputs each": Case((1, 4, 6, 19), (8, 1, 5, 3), padding=((2, 2), (1, 1)), epilogue="bias", groups=4),
    "small groups": Case((2, 6, 3, 40), (4, 3, 3, 3), padding=_SAME, epilogue="residual", slack=3, groups=2),
    "depthwise 7x7, flipped": Case((1, 2, 9, 10), (2, 1, 7, 7), padding=((3, 3), (3, 3)), flip=True, groups=2),
    "causal": Case((2, 7, 70), (7, 1, 4), (1,), ((3, 0),), (1,), "bias+silu", groups=7),
    "depthwise volume": Case((1, 2, 3, 3, 35), (2, 1, 3, 3, 3), (1, 1, 1), _SAME_3D, (1, 1, 1), _ALL, groups=2),
    "small groups of a volume": Case(
        (1, 4, 4, 4, 36), (6, 2, 2, 3, 2), (2, 1, 2), ((2, 0), (0, 1), (1, 0)), (3, 2, 1), slack=1, flip=True, groups=2
    ),
}


# How input and output lie where one of them at least does in planes.
PLANES = [(Layout.NCHW, Layout.NCHW), (Layout.NCHW, Layout.NHWC), (Layout.NHWC, Layout.NCHW)]


@dataclass(frozen=True)
class Operands:
    x: Tensor
    w: Tensor
    bias: Tensor | None
    residual: Tensor | None
    out: Tensor

    @classmethod
    def of(cls, problem: ConvProblem, device: str, *, integers: bool) -> Operands:
        """Small integers, on which every arithmetic is exact, or normal numbers; the output is filled with NaN."""
        torch.manual_seed(0)

        def filled(spec: TensorSpec) -> Tensor:
            raw = torch.randint(-2, 3, spec.shape).double() if integers else torch.randn(spec.shape).double()
            return empty(spec, device).copy_(raw)

        epilogue, bias = problem.epilogue, TensorSpec((problem.k,), problem.dtype)
        return cls(
            filled(problem.x), filled(problem.w), filled(bias) if epilogue.bias else None,
            filled(problem.y) if epilogue.residual else None, empty(problem.y, device).fill_(float("nan")),
        )  # fmt: skip

    def computed(self, plan: Plan) -> Tensor:
        """With an output and a workspace full of NaN."""
        self.out.fill_(float("nan"))
        workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device=self.x.device)
        packed = plan.prepare(self.w)
        assert plan(self.x, packed, self.bias, self.residual, self.out, workspace) is self.out
        return self.out


def listed(algorithm: str, problem: ConvProblem, device: DeviceFacts) -> list[Offer]:
    """What the backend says of one of its algorithms, whose name begins so."""
    offers = TritonKernels().candidates(problem, device, Policy())
    return [offer for offer in offers if offer.id.startswith(f"triton/{algorithm}")]


# Each is one number in TF32 and in fp16.
BEFORE_ACTIVATIONS = (
    -inf, -8192.0, -100.0, -20.0, -5.0, -3.0, -2.875, -1.0, -(2.0**-20), -0.0, 0.0, 2.0**-20, 0.5, 1.0, 2.875, 3.0, 5.0,
    20.0, 100.0, 8192.0, inf, nan,
)  # fmt: skip


def activating(activation: Activation, dtype: DType, device: str) -> tuple[ConvProblem, Operands]:
    """A convolution that is nothing but its activation."""
    problem = ConvProblem.parse(f"ic1iw{len(BEFORE_ACTIVATIONS)}oc1kw1 dt:{dtype} ep:{activation}")
    given = Operands.of(problem, device, integers=True)
    given.x.copy_(torch.tensor(BEFORE_ACTIVATIONS, dtype=torch.float64).view_as(given.x))
    given.w.fill_(1)
    return problem, given


def activated(given: Operands, activation: Activation) -> Tensor:
    """What the formulas by which PyTorch defines them make of it: NaN at an infinity where they say so."""
    x = given.x.double()
    formulas = {
        Activation.RELU: x.relu(),
        Activation.SILU: x / (1 + (-x).exp()),
        Activation.GELU: 0.5 * x * (1 + (x * sqrt(0.5)).erf()),
        Activation.HARDSWISH: x * (x + 3).clamp(0, 6) / 6,
    }
    return formulas.get(activation, x).to(given.x.dtype)


def oracle(problem: ConvProblem, given: Operands) -> Tensor:
    """The convolution in float64."""
    sides = [side for pair in reversed(problem.padding) for side in pair]
    w = given.w.double()
    w = w.flip(*range(2, w.dim())) if problem.flip else w
    x = F.pad(given.x.double(), sides)
    y = CONVOLVE[problem.rank](x, w, stride=problem.stride, dilation=problem.dilation, groups=problem.groups)
    y = y if given.residual is None else y + given.residual.double()
    y = y if given.bias is None else y + given.bias.double().view(-1, *[1] * problem.rank)
    return activate(y, problem.epilogue.activation)


def exact(y: Tensor, problem: ConvProblem) -> Tensor:
    return y.to(torch_dtype(problem.dtype))
