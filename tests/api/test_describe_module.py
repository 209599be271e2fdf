"""Modules pose the problems that they compute: held against what the module itself makes of an input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from convwright.api.describe_module import problem_of_module
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.eager.asking.describe import problem_of
from convwright.errors import BadInput
from problem_space import oracle

FORWARD: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv1d(4, 6, 5, padding="same", groups=2), (3, 4, 20)),
    (nn.Conv2d(3, 8, 3, stride=2, padding=(1, 0), dilation=(1, 2), bias=False), (2, 3, 9, 11)),
    (nn.Conv2d(8, 8, 4, padding="valid", groups=8), (1, 8, 9, 9)),
    (nn.Conv3d(2, 4, (1, 2, 3)), (2, 2, 4, 5, 6)),
    (nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="reflect"), (2, 3, 8, 9)),
    (nn.Conv2d(3, 4, (4, 3), padding="same", padding_mode="circular"), (2, 3, 8, 9)),
]
TRANSPOSED: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (3, 4, 7)),
    (nn.ConvTranspose2d(6, 4, (4, 3), stride=(2, 1), dilation=(1, 2), bias=False), (2, 6, 5, 4)),
    (nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 3, 4, 5)),
]


@pytest.mark.parametrize(("module", "shape"), FORWARD, ids=str)
def test_a_module_poses_the_problem_that_it_computes(module: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    problem = problem_of_module(module, shape)
    expected = module(x)
    assert problem.y.shape == tuple(expected.shape)
    assert problem.epilogue.bias == (module.bias is not None)
    padded = x
    if module.padding_mode != "zeros":
        padded = nn.functional.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
    assert problem.x.shape == tuple(padded.shape)
    given = {Role.X: padded, Role.W: module.weight} | ({} if module.bias is None else {Role.BIAS: module.bias})
    torch.testing.assert_close(oracle(problem, given).float(), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("module", "shape"), TRANSPOSED, ids=str)
def test_a_transposed_module_poses_a_backward_data_problem(module: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    problem = problem_of_module(module, shape)
    assert problem.direction is Direction.BACKWARD_DATA
    result = oracle(problem, {Role.DY: x, Role.W: module.weight}).float()
    if module.bias is not None:
        result += module.bias.detach().view(-1, *[1] * problem.rank)
    torch.testing.assert_close(result, module(x).detach(), rtol=1e-4, atol=1e-5)


def test_it_is_the_problem_of_the_tensors() -> None:
    module = nn.Conv2d(8, 16, 3, padding=1).half()
    x = torch.empty(4, 8, 10, 10, dtype=torch.float16)
    assert problem_of_module(module, x.shape) == problem_of(x, module.weight, module.bias, padding=1)
    last = module.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    assert problem_of_module(last, x.shape, layout="nhwc") == problem_of(x, last.weight, last.bias, padding=1)


def test_dtype_and_layout_may_be_others() -> None:
    problem = problem_of_module(nn.Conv2d(8, 16, 3), (4, 8, 10, 10), dtype="bf16", layout="nhwc")
    assert problem.dtype is DType.BF16
    assert [spec.layout for spec in (problem.x, problem.w, problem.y)] == [Layout.NHWC, Layout.NCHW, Layout.NHWC]
    torchs = problem_of_module(nn.ConvTranspose2d(8, 16, 3), (4, 8, 10, 10), dtype=str(torch.float64), layout="nhwc")
    assert torchs.dtype is DType.FP64
    assert (torchs.y.layout, torchs.x.layout) == (Layout.NHWC, Layout.NHWC)


def test_one_image_without_a_batch() -> None:
    module = nn.Conv2d(3, 4, 3)
    assert problem_of_module(module, (3, 8, 8)) == problem_of_module(module, (1, 3, 8, 8))


def test_no_memory_is_taken() -> None:
    with torch.device("meta"):
        module = nn.Conv2d(4096, 4096, 3, padding=1)
    problem = problem_of_module(module, (1024, 4096, 512, 512))
    assert problem.x.nbytes == 4 * 1024 * 4096 * 512 * 512


def test_a_parametrised_weight_is_a_weight() -> None:
    module = weight_norm(nn.Conv1d(4, 8, 3))
    assert problem_of_module(module, (2, 4, 9)) == ConvProblem.of((2, 4, 9), (8, 4, 3), epilogue="bias")


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (nn.Linear(3, 4), (1, 3), ["Conv1d", "ConvTranspose3d", "Linear"]),
        (nn.LazyConv2d(4, 3), (1, 3, 9, 9), ["LazyConv2d", "no weight before its first call"]),
        (nn.Conv2d(3, 4, 3), (1, 3, 9, 9, 9), ["Conv2d", "4 dimensions", "(1, 3, 9, 9, 9)"]),
        (nn.Conv2d(3, 4, 3), (1, 5, 9, 9), ["`weight`", "channels", "got 3"]),
        (nn.Conv2d(3, 4, 3), (1, 3, 2, 9), ["3 elements", "only 2"]),
        (nn.Conv2d(3, 4, 3), (1, 3, -2, 9), ["negative", "-2"]),
        (nn.Conv2d(3, 4, 3), (1, 3.0, 9, 9), ["`input`", "whole numbers", "3.0"]),
        (nn.ConvTranspose2d(3, 4, 3), (1, 5, 9, 9), ["transposed `weight`", "(=5)", "got 3"]),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_sentence(module: nn.Module, shape: Any, words: list[str]) -> None:
    with pytest.raises(BadInput) as refused:
        problem_of_module(module, shape)
    said = str(refused.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == []
