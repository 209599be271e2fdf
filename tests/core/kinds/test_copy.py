"""Copies: what they check, count and print."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from convwright.core.dtype import DType
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.text import parse
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from kind_space import copy_problems


@given(copy_problems())
def test_its_text_is_read_back(problem: CopyProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert again.key == problem.key


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("copy mb32ic64ih56 nchw->nhwc", "copy mb32ic64ih56iw56 nchw->nhwc dt:fp32"),
        ("copy ic8 dt:fp32->float16", "copy mb1ic8 nchw->nchw dt:fp32->fp16"),
        (
            "copy ic8ih9 nhwc->nhwc slice:c=0:4,h=1:8 pad:w=1:0,h=0:2",
            "copy mb1ic8ih9iw9 nhwc->nhwc dt:fp32 slice:c=0:4,h=1:8 pad:h=0:2,w=1:0",
        ),
    ],
)
def test_what_is_left_out_is_inferred(text: str, full: str) -> None:
    if "h=0:2" in text:
        with pytest.raises(BadInput, match="h is both cut and padded at one end"):
            parse(text)
    else:
        assert parse(text).key == full


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("copy", "is written like copy mb32ic64ih56 nchw->nhwc, got 'copy'"),
        ("copy ic8 nchw->nhwc->nchw", "layouts of a copy are written from->to"),
        ("copy ic8 nchw->", "layouts of a copy are written from->to"),
        ("copy ic8 nchw->strided", "a layout must be one of nchw, nhwc, got 'strided'"),
        ("copy ic8 slice:c=4", "slice is written like slice:c=8:24, of dimensions n, c, got 'c=4'"),
        ("copy ic8 slice:c=4:9", "a slice lies within 0:8, got 4:9"),
        ("copy ic8 slice:c=5:4", "a slice lies within 0:8, got 5:4"),
        ("copy 2x3x4x5x6x7 pad:c=1", "of dimensions 0, 1, 2, 3, 4, 5"),
        ("copy ic8 pad:c=1,c=2", "c is given twice"),
        ("copy ic8 pad:c=x", "a number in pad must be a whole number"),
        ("copy ic8 dt:int8->fp32", "int8 cannot be copied to fp32; fp64, fp32, fp16, bf16 can be cast"),
        ("copy mb2ic8 nchw->0/1", "the output must not overlap itself"),
        ("copy ic8 ep:relu", "a copy's options are dt, slice and pad, got 'ep'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)


def test_sizes_must_fit() -> None:
    x, y = TensorSpec((4, 8), DType.FP32), TensorSpec((4, 9), DType.FP32)
    assert CopyProblem(x, y, ((0, 0), (0, 1))).kept == (4, 8)
    with pytest.raises(BadInput, match="becomes"):
        CopyProblem(x, y)
    with pytest.raises(BadInput, match="keeps its dimensions"):
        CopyProblem(x, replace(y, shape=(36,), strides=()))
    with pytest.raises(BadInput, match="becomes"):
        CopyProblem(x, x, ((0, 0), (-9, 9)))


def test_bytes_are_what_is_read_and_written() -> None:
    problem = CopyProblem.parse("copy mb2ic8 dt:fp32->fp16 slice:c=2:8 pad:n=1")
    assert problem.bytes == 2 * 6 * 4 + 4 * 6 * 2
    assert (problem.read_from, problem.written_from, problem.kept, problem.pads) == ((0, 2), (1, 0), (2, 6), True)
