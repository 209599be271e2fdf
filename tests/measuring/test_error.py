"""The reference is right, rounding is seen as what it is, and wrong results are found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import inf, isfinite

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.error_bound import scaled_bound
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError
from convwright.measuring.checking.data import FINITE_KINDS, Kind, operands
from convwright.measuring.checking.error import ErrorCheck, errors_of, measure_errors
from convwright.measuring.checking.reference import Reference, Sample
from convwright.tensors import torch_dtype

PROBLEMS = [
    "mb2ic6iw19oc8kw5pw2sw2",
    "mb2ic6ih11iw9oc8kh3kw2ph1",
    "g2mb2ic6ih12oc8kh3ph2dh1sh2",
    "g6ic6ih8oc12kh3ph1",
    "mb2ic3id5ih6iw7oc4kd2kh3kw3pd1ph1pw0",
    "ic4ih8oh4oc3kh3sh2ph1 flip:1",
    "ic4ih9oc3kh2kw3ph1 flip:1",
]
EPILOGUE = "mb2ic6ih11oc8kh3ph1 ep:residual+bias+relu"


def by_taps(problem: ConvProblem, x: Tensor, w: Tensor) -> Tensor:
    """The definition, one filter tap after the other; autograd gives both backward directions."""
    pads = [side for pair in reversed(problem.padding) for side in pair]
    x, groups = F.pad(x, pads), problem.groups
    x = x.reshape(problem.n, groups, -1, *x.shape[2:])
    w = w.reshape(groups, problem.k // groups, *w.shape[1:])
    total = torch.zeros(problem.y.shape, dtype=x.dtype)
    for tap in product(*map(range, problem.taps)):
        place = [size - 1 - i for size, i in zip(problem.taps, tap, strict=True)] if problem.flip else list(tap)
        window = [
            slice(i * axis.dilation, i * axis.dilation + (axis.out - 1) * axis.stride + 1, axis.stride)
            for i, axis in zip(tap, problem.axes, strict=True)
        ]
        part = torch.einsum("ngc...,gkc->ngk...", x[(..., *window)], w[(..., *place)])
        total = total + part.reshape(problem.y.shape)
    return total


def by_definition(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    exact = {role: tensor.double() for role, tensor in tensors.items()}
    x = exact.get(Role.X, torch.zeros(problem.x.shape, dtype=torch.float64)).requires_grad_()
    w = exact.get(Role.W, torch.zeros(problem.w.shape, dtype=torch.float64)).requires_grad_()
    y = by_taps(problem, x, w)
    if problem.direction is Direction.FORWARD:
        return y.detach()
    y.backward(exact[Role.DY])
    gradient = (x if problem.direction is Direction.BACKWARD_DATA else w).grad
    assert gradient is not None
    return gradient


def torch_forward(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    pads = [side for pair in reversed(problem.padding) for side in pair]
    bias = tensors.get(Role.BIAS)
    y = F.conv2d(
        F.pad(tensors[Role.X], pads), tensors[Role.W], bias, problem.stride, 0, problem.dilation, problem.groups
    )
    if Role.RESIDUAL in tensors:
        y = y + tensors[Role.RESIDUAL]
    return y.relu() if problem.epilogue else y


@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("direction", Direction)
def test_the_reference_is_the_definition(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    tensors = operands(problem, Kind.NORMAL, "cpu")
    reference = Reference.of(problem, tensors)
    assert reference.y64.shape == problem.output.shape
    torch.testing.assert_close(reference.y64, by_definition(problem, tensors), rtol=1e-12, atol=1e-12)
    scale = by_definition(problem, {role: tensor.abs() for role, tensor in tensors.items()})
    torch.testing.assert_close(reference.scale, scale, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", [*PROBLEMS, "g8mb16ic64ih9oc32kh3ph1"])
@pytest.mark.parametrize("direction", Direction)
def test_a_sample_is_a_part_of_the_whole(text: str, direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    tensors = operands(problem, Kind.NORMAL, "cpu")
    whole = Reference.of(problem, tensors)
    monkeypatch.setattr("convwright.measuring.checking.reference._MOST_FLOPS", {"cpu": problem.flops / 20})
    part = Reference.of(problem, tensors)
    assert part.y64.numel() < whole.y64.numel()
    for ours, all_of_it in ((part.y64, whole.y64), (part.scale, whole.scale)):
        torch.testing.assert_close(ours, part.sample.take(direction.output, all_of_it), rtol=1e-12, atol=1e-12)
    assert errors_of(whole.y64.float(), part)[1] <= 1


def test_a_large_problem_is_sampled_with_its_ends() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1")
    sample = Sample.of(problem, share=2e9 / problem.flops)
    assert (sample.images[0], sample.images[-1]) == (0, 31)
    assert (sample.out_channels[0], sample.out_channels[-1]) == (0, 63)
    assert sample.in_channels == tuple(range(64))
    work = len(sample.images) * len(sample.out_channels) / (32 * 64)
    assert 0.4e9 <= work * problem.flops <= 2e9


@pytest.mark.parametrize("dtype", IN_PYTORCH)
@pytest.mark.parametrize("text", [EPILOGUE, "g2mb2ic6ih12oc8kh3ph2dh1sh2"])
def test_pytorch_stays_within_the_bound_on_all_finite_data(dtype: DType, text: str) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    native = {DType.FP64: Arithmetic.FP64, DType.FP32: Arithmetic.FP32}.get(dtype, Arithmetic.FP16_ACC32)
    for error in measure_errors(lambda tensors: torch_forward(problem, tensors), problem, "cpu", FINITE_KINDS):
        # PyTorch's separate residual and activation round once more.
        assert error.scaled_max <= scaled_bound(native, dtype, problem.reduction) + 2
        assert error.relative_l2 <= 4 * dtype.roundoff + problem.reduction * 2.0**-53


def test_an_exact_result_has_at_most_half_a_rounding() -> None:
    problem = ConvProblem.parse(f"{EPILOGUE} dt:fp16")
    check = ErrorCheck(problem, "cpu", kinds=[Kind.NORMAL, Kind.INTEGERS])
    normal, integers = check.errors(lambda t: Reference.of(problem, t).y64.half())
    assert 0 < normal.scaled_max <= 1
    assert (integers.relative_l2, integers.scaled_max) == (0, 0)


def to_tf32(tensor: Tensor) -> Tensor:
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_inputs_rounded_to_tf32_show() -> None:
    problem = ConvProblem.parse("mb2ic32ih11oc8kh3ph1")

    def tf32(tensors: dict[Role, Tensor]) -> Tensor:
        return torch_forward(problem, {role: to_tf32(tensor) for role, tensor in tensors.items()})

    for coarse, fine in zip(
        measure_errors(tf32, problem, "cpu", FINITE_KINDS),
        measure_errors(lambda tensors: torch_forward(problem, tensors), problem, "cpu", FINITE_KINDS),
        strict=True,
    ):
        assert coarse.relative_l2 > 100 * fine.relative_l2
        assert coarse.scaled_max > scaled_bound(Arithmetic.FP32, DType.FP32, 3) > fine.scaled_max / problem.reduction
        assert coarse.scaled_max <= scaled_bound(Arithmetic.TF32, DType.FP32, problem.reduction)


def wrong_axes(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    return torch_forward(problem, tensors | {Role.W: tensors[Role.W].transpose(2, 3)})


def wrong_border(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    y = torch_forward(problem, tensors)
    y[..., -1] = 0
    return y


def wrong_bias(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    return torch_forward(problem, {role: tensor for role, tensor in tensors.items() if role is not Role.BIAS})


def wrong_element(problem: ConvProblem, tensors: dict[Role, Tensor]) -> Tensor:
    y = torch_forward(problem, tensors)
    y[-1, -1, -1, -1] = y[-1, -1, -1, -1] * 1.01 + 0.01
    return y


@pytest.mark.parametrize("wrong", [wrong_axes, wrong_border, wrong_bias, wrong_element])
def test_wrong_results_are_found_out(wrong: Callable[[ConvProblem, dict[Role, Tensor]], Tensor]) -> None:
    problem = ConvProblem.parse(EPILOGUE)
    for error in measure_errors(lambda tensors: wrong(problem, tensors), problem, "cpu", ["normal", "positive"]):
        assert error.scaled_max > 10 * scaled_bound(Arithmetic.FP32, DType.FP32, problem.reduction)


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16])
@pytest.mark.parametrize("kind", [Kind.INFINITY, Kind.NAN])
def test_infinities_and_nans_must_stand_where_float64_has_them(dtype: DType, kind: Kind) -> None:
    problem = ConvProblem.parse(f"mb2ic6ih11oc8kh3ph1 dt:{dtype}")
    reference = Reference.of(problem, operands(problem, kind, "cpu"))
    right = reference.y64.to(torch_dtype(dtype))
    assert all(isfinite(error) for error in errors_of(right, reference))
    hit = (~right.isfinite()).nonzero()[0]
    for position, value in ((tuple(hit), 0.0), ((0, 0, 0, 0), torch.nan), ((0, 0, 0, 0), torch.inf)):
        wrong = right.clone()
        wrong[position] = value
        assert errors_of(wrong, reference) == (inf, inf)


def test_an_infinity_must_have_its_sign_and_be_no_nan() -> None:
    problem = ConvProblem.parse("mb2ic6ih11oc8kh3ph1")
    reference = Reference.of(problem, operands(problem, Kind.INFINITY, "cpu"))
    right = reference.y64.float()
    assert errors_of(torch.where(right.isinf(), -right, right), reference) == (inf, inf)
    assert errors_of(torch.where(right.isinf(), torch.nan, right), reference) == (inf, inf)


def test_what_overflows_the_dtype_must_be_infinite() -> None:
    problem = ConvProblem.parse("ic1ih4oc1kh1 dt:fp16")
    tensors = {Role.X: torch.full((1, 1, 4, 4), 6e4).half(), Role.W: torch.full((1, 1, 1, 1), 2.0).half()}
    reference = Reference.of(problem, tensors)
    assert errors_of(torch.full((1, 1, 4, 4), torch.inf).half(), reference) == (0, 0)
    assert errors_of(torch.full((1, 1, 4, 4), 65504.0).half(), reference) == (inf, inf)


def test_beside_numbers_without_full_precision_an_error_is_one_of_the_least_with_it() -> None:
    problem = ConvProblem.parse("ic1ih8oc1kh1 dt:fp16")
    tiny = {Role.X: torch.full((1, 1, 8, 8), 1.3e-6).half(), Role.W: torch.full((1, 1, 1, 1), 0.77).half()}
    reference = Reference.of(problem, tiny)
    _, rounded = errors_of(reference.y64.view(problem.y.shape).half(), reference)
    assert rounded <= 0.5
    _, halved = errors_of((reference.y64 / 2).view(problem.y.shape).half(), reference)
    assert halved > 10
    fifties = {**tiny, Role.X: tiny[Role.X] * 50}
    reference = Reference.of(problem, fifties)
    _, flushed = errors_of(torch.zeros(problem.y.shape).half(), reference)
    assert flushed > 1000


def test_nothing_may_come_out_of_nothing() -> None:
    problem = ConvProblem.parse("ic1ih4oc1kh1")
    zeros = {Role.X: torch.zeros(1, 1, 4, 4), Role.W: torch.ones(1, 1, 1, 1)}
    reference = Reference.of(problem, zeros)
    assert errors_of(torch.zeros(1, 1, 4, 4), reference) == (0, 0)
    assert errors_of(torch.full((1, 1, 4, 4), 1e-30), reference) == (inf, inf)


def test_an_output_of_another_shape_is_said() -> None:
    problem = ConvProblem.parse("ic2ih4oc2kh3")
    with pytest.raises(BackendError, match=r"must have shape \(1, 2, 2, 2\), got \(1, 2, 4, 4\)"):
        measure_errors(lambda tensors: tensors[Role.X], problem, "cpu")


@pytest.mark.parametrize("direction", Direction)
def test_an_empty_batch_has_no_error(direction: Direction) -> None:
    problem = replace(ConvProblem.of((0, 4, 5, 5), (4, 4, 3, 3)), direction=direction)
    zeros = torch.zeros(problem.output.shape)
    assert all((e.relative_l2, e.scaled_max) == (0, 0) for e in measure_errors(lambda _: zeros, problem, "cpu"))


def test_references_are_made_once_for_many_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ConvProblem.parse(EPILOGUE)
    check = ErrorCheck(problem, "cpu", kinds=["normal"])
    first = check.errors(lambda tensors: torch_forward(problem, tensors))
    monkeypatch.setattr(Reference, "of", None)
    assert check.errors(lambda tensors: torch_forward(problem, tensors)) == first
