"""Matrix products: what they check, count and print."""

from __future__ import annotations

import pytest
from hypothesis import given

from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.text import parse
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from kind_space import linear_problems


@given(linear_problems())
def test_its_text_is_read_back(problem: LinearProblem) -> None:
    again = parse(problem.key)
    assert again == problem
    assert again.key == problem.key


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("linear ic512oc1000mb32", "linear mb32ic512oc1000 dt:fp32 tag:row ep:none"),
        ("linear ic4oc3 dt:fp16 ep:bias+relu tag:nchw", "linear mb1ic4oc3 dt:fp16 tag:row ep:bias+relu"),
        ("linear mb2ic4oc3 tag:x=col,w=col,y=row", "linear mb2ic4oc3 dt:fp32 tag:x=col,w=col,y=row ep:none"),
        ("linear mb2ic4oc3 tag:w=8/2,y=row@4,x=row", "linear mb2ic4oc3 dt:fp32 tag:x=row,w=8/2,y=row@4 ep:none"),
    ],
)
def test_what_is_left_out_is_inferred(text: str, full: str) -> None:
    assert parse(text).key == full


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linear", "is written like linear mb32ic512oc1000"),
        ("linear mb32ic512", "'oc' is missing in 'mb32ic512'"),
        ("linear mb32ic512oc10kh3", "'kh' in 'mb32ic512oc10kh3' is no size; the sizes are mb, ic, oc"),
        ("linear ic0oc10", "needs at least one input and one output, got 0 and 10"),
        ("linear ic4oc10 dt:int8", "are stored in one of fp64, fp32, fp16, bf16, got int8, int8, int8"),
        ("linear ic4oc10 ep:scale", "fuses residual, bias and an activation, got scale"),
        ("linear ic4oc10 tag:x=row,w=row", "`tag` must name x, w and y once each"),
        ("linear ic4oc10 dir:forward", "a linear problem's options are dt, tag and ep, got 'dir'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse(text)
    assert words in str(raised.value)


def test_shapes_must_fit() -> None:
    x, w, y = (TensorSpec(shape, DType.FP32) for shape in ((2, 3), (4, 3), (2, 4)))
    assert LinearProblem(x, w, y).width == 4
    with pytest.raises(BadInput, match="are no"):
        LinearProblem(x, w, x)
    with pytest.raises(BadInput, match="have two dimensions"):
        LinearProblem(TensorSpec((1, 2, 3), DType.FP32), w, y)


def test_it_counts_and_errs_as_a_convolution_of_one_tap() -> None:
    linear = LinearProblem.of(32, 64, 48, epilogue=Epilogue.parse("bias+gelu"))
    conv = ConvProblem.parse("mb1ic64iw32oc48kw1 ep:bias+gelu")
    assert linear.flops == conv.flops
    assert linear.bytes == conv.bytes
    for arithmetic in (Arithmetic.FP32, Arithmetic.TF32):
        assert linear.error_bound(arithmetic) == conv.error_bound(arithmetic)
    assert [*linear.operands] == ["x", "w", "bias", "y"]
