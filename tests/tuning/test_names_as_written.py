"""Names as users write them: with other spaces, with a configuration that there is not, with knobs that are none."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BadInput, Refused
from convwright.tuning.asked import named
from convwright.tuning.search import resolved


def test_spaces_in_a_name_do_not_matter() -> None:
    x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    for name in ("relayout(nhwc,reference/gemm)", " relayout( nhwc ,  reference/gemm )"):
        with cw.algorithms(forward=name):
            cw.conv2d(x, w)
        choice = cw.last_choice()
        assert choice is not None
        assert choice.candidate.id == "relayout(nhwc, reference/gemm)"
        assert cw.why("ic4ih8oc4kh3", name, "cpu").serves


def test_a_configuration_that_there_is_not_is_told_from_a_name_that_there_is_not() -> None:
    x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    with pytest.raises(
        BadInput, match=r"winograd\[m=99\]' is not a configuration here; for this problem there are .*\[m=4\]"
    ):
        cw.conv2d(x, w, algorithm="reference/winograd[m=99]")
    with pytest.raises(BadInput, match="no algorithm here is called 'reference/winogrd"):
        cw.conv2d(x, w, algorithm="reference/winogrd[m=4]")


@pytest.mark.parametrize(("name", "problem", "found"), [
    ("implicit-gemm", "ic16ih12oc16kh3", "3xtf32"), ("staged-gemm", "ic16ih12oc16kh3", "3xfp16"),
    ("input-gradient", "ic16ih12oc16kh3sh2 dir:backward_data", "3xtf32"),
])  # fmt: skip
def test_a_name_without_arithmetic_is_the_first_in_any(name: str, problem: str, found: str) -> None:
    asked, device = ConvProblem.parse(problem), profile("h200")
    candidate = named(f"triton/{name}", asked, device, resolved(Policy(), asked, device))
    assert candidate.algorithm == f"{name}-{found}"
    assert candidate.arithmetic is Arithmetic(found)


def test_a_longer_name_is_not_meant() -> None:
    """cudnn/fft-tiling is another algorithm than cudnn/fft, which refuses."""
    refused = ConvProblem.parse("mb2ic4ih300oc4kh3 dt:fp32")
    with pytest.raises(Refused, match=r"^cudnn/fft cannot compute"):
        named("cudnn/fft", refused, profile("h200"), Policy())
    assert named("cudnn/fft-tiling", refused, profile("h200"), Policy()).algorithm == "fft-tiling"


def test_what_does_not_fuse_is_left_out_where_nothing_else_is_demanded() -> None:
    x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    with cw.algorithms(forward="torch/onednn-fused", strict=False):
        assert cw.conv2d(x, w).shape == (1, 4, 6, 6)
    with pytest.raises(Refused, match=r"torch/onednn-fused cannot compute .*: needs an activation to fuse, got none"):
        cw.conv2d(x, w, algorithm="torch/onednn-fused")


def test_knobs_are_whole_numbers() -> None:
    with pytest.raises(BadInput, match=r"knobs of an engine are written as in cudnn/engine-48\[k2=1,k13=2\], got"):
        cw.why("ic4ih8oc4kh3", "engine-20[k2=x]", "h200")


def test_a_tensor_in_the_place_of_a_problem_is_not_printed_whole() -> None:
    with pytest.raises(BadInput) as refused:
        cw.why(torch.randn(64, 64, 8, 8), "reference/gemm", "cpu")  # type: ignore[arg-type]
    assert len(str(refused.value)) < 200


def test_strict_is_true_or_false() -> None:
    with (
        pytest.raises(BadInput, match="`strict` must be True or False, got 'no'"),
        cw.algorithms(forward="reference/gemm", strict="no"),  # type: ignore[arg-type]
    ):
        pass
