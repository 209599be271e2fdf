"""Names as users write them: with other spaces, with a configuration that there is not, with knobs that are none."""

from __future__ import annotations

import pytest
import torch

import convwright as cw
from convwright.errors import BadInput


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
        BadInput, match=r"winograd\[m=99\]' is no configuration here; for this problem there are .*\[m=4\]"
    ):
        cw.conv2d(x, w, algorithm="reference/winograd[m=99]")
    with pytest.raises(BadInput, match="no algorithm here is called 'reference/winogrd"):
        cw.conv2d(x, w, algorithm="reference/winogrd[m=4]")


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
