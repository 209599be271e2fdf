"""A problem checks itself: each refusal is one sentence that names the offending value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem, per_axis
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput, ConvwrightError

X, W = (2, 6, 9, 8), (4, 6, 3, 3)

REFUSED: list[tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any], list[str]]] = [
    ((2, 6), (4, 6), {}, ["`input`", "3, 4 or 5 dimensions", "(2, 6)"]),
    ((2, 6, 5, 5, 5, 5), (4, 6, 1, 1, 1, 1), {}, ["`input`", "(2, 6, 5, 5, 5, 5)"]),
    (X, (4, 6, 3), {}, ["`weight`", "4 dimensions", "(4, 6, 3)"]),
    (X, W, {"groups": 4}, ["`in_channels` (=6)", "`groups` (=4)"]),
    (X, (4, 2, 3, 3), {"groups": 3}, ["`out_channels` (=4)", "`groups` (=3)"]),
    (X, (4, 5, 3, 3), {}, ["`weight`", "(=6)", "got 5"]),
    (X, W, {"groups": 0}, ["`groups`", "at least 1", "got 0"]),
    (X, W, {"groups": -2}, ["`groups`", "at least 1", "got -2"]),
    (X, W, {"stride": 0}, ["`stride`", "at least 1", "(0, 0)"]),
    (X, W, {"stride": (1, -2)}, ["`stride`", "(1, -2)"]),
    (X, W, {"dilation": (1, 0)}, ["`dilation`", "(1, 0)"]),
    (X, W, {"padding": -1}, ["`padding`", "at least 0", "got -1"]),
    (X, W, {"padding": (0, -1)}, ["`padding`", "at least 0", "got (0, -1)"]),
    (X, W, {"stride": (1, 2, 3)}, ["`stride`", "2 ints", "(1, 2, 3)"]),
    (X, W, {"padding": (1.5, 1)}, ["`padding`", "2 ints", "1.5"]),
    ((2, -6, 9, 8), W, {}, ["negative", "-6"]),
    ((-1, 6, 9, 8), W, {}, ["negative", "-1"]),
    ((2, 6, 0, 8), W, {"padding": 2}, ["`input`", "at least 1", "(6, 0, 8)"]),
    ((2, 0, 9, 8), (4, 0, 3, 3), {}, ["at least 1", "0"]),
    (X, (4, 6, 3, 0), {}, ["`weight`", "at least 1", "(4, 6, 3, 0)"]),
    (X, (4, 6, 12, 3), {"padding": 1}, ["12 elements", "only 11"]),
    (X, (4, 6, 3, 3), {"dilation": (1, 4)}, ["9 elements", "only 8"]),
    (X, W, {"dtype": "int4"}, ["dtype", "fp32", "'int4'"]),
    (X, W, {"dtype": "fp16", "out_dtype": "fp32"}, ["output of fp16", "must be fp16", "got fp32"]),
    (X, W, {"dtype": "int8", "direction": "backward_weight"}, ["int8", "forward direction", "backward_weight"]),
    (X, W, {"epilogue": "bias+tanh"}, ["scale, residual, bias, accumulate", "relu", "'tanh'"]),
    (X, W, {"epilogue": "bias+bias"}, ["at most once", "'bias+bias'"]),
    (X, W, {"epilogue": "residual", "direction": "backward_data"}, ["forward direction", "residual", "backward_data"]),
    (X, W, {"direction": "sideways"}, ["direction", "forward", "'sideways'"]),
    (X, W, {"layout": "nchwc"}, ["layout", "nhwc", "'nchwc'"]),
    (X, W, {"layout": "strided"}, ["layout", "nchw, nhwc", "TensorSpecs"]),
    (X, W, {"layout": {"z": "nhwc"}}, ["`layout`", "x, w and y", "'z'"]),
    (X, W, {"alignment": 3}, ["`alignment`", "1, 2, 4, 8, 16", "got 3"]),
    ((2.0, 6, 9, 8), W, {}, ["`input`", "whole numbers", "2.0"]),
    ((True, 6, 9, 8), W, {}, ["`input`", "whole numbers", "True"]),
    (X, (4, 6, 3.0, 3), {}, ["`weight`", "whole numbers", "3.0"]),
    (X, W, {"stride": True}, ["`stride`", "2 ints", "True"]),
    (X, W, {"stride": 1.0}, ["`stride`", "2 ints", "1.0"]),
    (X, W, {"stride": "2"}, ["`stride`", "2 ints", "'2'"]),
    (X, W, {"stride": None}, ["`stride`", "2 ints", "None"]),
    (X, W, {"dilation": (1, False)}, ["`dilation`", "2 ints", "False"]),
    (X, W, {"groups": 2.0}, ["`groups`", "whole number", "2.0"]),
    (X, W, {"groups": True}, ["`groups`", "whole number", "True"]),
    (X, W, {"padding": (1, 2, 3)}, ["`padding`", "2 ints or pairs", "(1, 2, 3)"]),
    (X, W, {"padding": ((1, 2, 3), 1)}, ["`padding`", "2 ints or pairs", "(1, 2, 3)"]),
    (X, W, {"padding": ((1, 2.5), 1)}, ["`padding`", "2 ints or pairs", "2.5"]),
    (X, W, {"padding": ((0, -1), (0, 0))}, ["`padding`", "at least 0", "got ((0, -1), 0)"]),
    (X, W, {"padding": None}, ["`padding`", "2 ints or pairs", "None"]),
    (X, W, {"padding": "full"}, ["`padding`", "'same'", "'full'"]),
    (X, W, {"padding": "same", "stride": 2}, ["padding='same'", "stride 1", "(2, 2)"]),
]


def assert_one_sentence(error: BaseException, words: list[str]) -> None:
    said = str(error)
    assert "\n" not in said
    for word in words:
        assert word in said


@pytest.mark.parametrize(("x", "w", "arguments", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_input_is_refused_in_one_sentence(
    x: tuple[int, ...], w: tuple[int, ...], arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(BadInput) as refused:
        ConvProblem.of(x, w, **arguments)
    assert_one_sentence(refused.value, words)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, ConvwrightError)


def test_shapes_and_epilogues_of_another_kind_are_refused() -> None:
    wrong: dict[str, Any] = {"x": 5, "w": 6}
    with pytest.raises(BadInput, match=r"^`input` must be made of whole numbers, got 5$"):
        ConvProblem.of(**wrong)
    with pytest.raises(BadInput, match=r"^`weight` must be made of whole numbers, got 6$"):
        ConvProblem.of(**(wrong | {"x": X}))
    with pytest.raises(BadInput, match=r"`epilogue` must be an Epilogue or its text, .* got 5$"):
        ConvProblem.of(X, W, epilogue=5)  # type: ignore[arg-type]


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    dense = [TensorSpec(shape, DType.FP32) for shape in (X, W, (2, 4, 7, 7))]
    with pytest.raises(BadInput, match=r"`output` must have shape \(2, 4, 7, 6\), got \(2, 4, 7, 7\)"):
        ConvProblem(*dense, (1, 1), ((0, 0), (0, 0)), (1, 1))


def test_mixed_dtypes_are_refused() -> None:
    with pytest.raises(BadInput, match="same dtype, got fp32 and fp16"):
        ConvProblem.of_specs(
            TensorSpec(X, DType.FP32), TensorSpec(W, DType.FP16), stride=(1, 1), padding=((0, 0),) * 2, dilation=(1, 1)
        )


def test_entries_per_dimension_are_counted() -> None:
    specs = TensorSpec(X, DType.FP32), TensorSpec(W, DType.FP32)
    with pytest.raises(BadInput, match=r"`dilation` must have one entry per spatial dimension \(2\), got \(1,\)"):
        ConvProblem.of_specs(*specs, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1,))


@pytest.mark.parametrize(("value", "expected"), [(3, (3, 3)), ((3,), (3, 3)), ([1, 2], (1, 2)), ((0, 4), (0, 4))])
def test_per_axis(value: Any, expected: tuple[int, ...]) -> None:
    assert per_axis("stride", value, 2) == expected


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (1, ((1, 1), (1, 1))),
        ((1, 2), ((1, 1), (2, 2))),
        ([(0, 3)], ((0, 3), (0, 3))),
        (((0, 1), (2, 0)), ((0, 1), (2, 0))),
        ((3, (2, 0)), ((3, 3), (2, 0))),
        ("valid", ((0, 0), (0, 0))),
        ("same", ((1, 2), (2, 2))),
    ],
    ids=str,
)
def test_padding_in_every_form(padding: Any, expected: tuple[tuple[int, int], ...]) -> None:
    problem = ConvProblem.of((2, 6, 20, 20), (4, 6, 4, 5), padding=padding)
    assert problem.padding == expected
    if padding == "same":
        assert problem.y.shape[2:] == problem.x.shape[2:]


def test_same_padding_knows_dilation() -> None:
    problem = ConvProblem.of((1, 1, 30), (1, 1, 4), padding="same", dilation=3)
    assert (problem.padding, problem.y.shape) == (((4, 5),), (1, 1, 30))


def test_layouts_by_operand_and_alignment() -> None:
    problem = ConvProblem.of(X, W, layout={"x": "nhwc", "y": Layout.NHWC}, alignment=4)
    assert [spec.layout for spec in (problem.x, problem.w, problem.y)] == [Layout.NHWC, Layout.NCHW, Layout.NHWC]
    assert {spec.alignment for spec in (problem.x, problem.w, problem.y)} == {4}


def test_numpys_integers_are_whole_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    sizes = numpy.array(X)
    problem = ConvProblem.of(sizes, W, stride=numpy.int64(2), padding=numpy.int32(1))
    assert problem == ConvProblem.of(X, W, stride=2, padding=1)
    assert {type(size) for size in (*problem.x.shape, *problem.stride, *problem.padding[0])} == {int}


def test_dtypes_may_be_pytorchs() -> None:
    assert ConvProblem.of(X, W, dtype=torch.float16).dtype is DType.FP16  # type: ignore[arg-type]


def test_sizes_follow_from_the_arguments() -> None:
    problem = ConvProblem.of((3, 4, 11, 10), (8, 2, 3, 2), stride=(2, 1), padding=(1, 0), dilation=(2, 3), groups=2)
    assert problem.y.shape == (3, 8, 5, 7)
    assert (problem.n, problem.c, problem.k, problem.taps, problem.rank) == (3, 4, 8, (3, 2), 2)
    assert problem.symmetric_padding == (1, 0)


def test_equal_problems_are_one_key_in_a_dictionary() -> None:
    one, other = ConvProblem.of(X, W, padding=1), ConvProblem.of([*X], [*W], padding=(1, 1), stride=[1, 1])
    assert one == other
    assert {one: 1}[other] == 1
    assert one != ConvProblem.of(X, W, padding=1, layout="nhwc")
    assert one != ConvProblem.of(X, W, padding=1, flip=True)


def test_empty_batches_are_problems() -> None:
    problem = ConvProblem.of((0, 6, 9, 8), W)
    assert (problem.flops, problem.y.shape) == (0, (0, 4, 7, 6))


def test_operands_by_role_output_last() -> None:
    epilogue = Epilogue(residual=True, bias=True, activation=Activation.RELU)
    forward = ConvProblem.of(X, W, epilogue=epilogue)
    assert [*forward.operands] == [Role.X, Role.W, Role.RESIDUAL, Role.BIAS, Role.Y]
    assert forward.operands[Role.BIAS].shape == (4,)
    assert forward.operands[Role.RESIDUAL] == forward.y
    data, weight = (forward.asking(direction) for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT))
    assert [*data.operands] == [Role.DY, Role.W, Role.DX]
    assert [*weight.operands] == [Role.X, Role.DY, Role.DW]
    assert (data.output, weight.output) == (forward.x, forward.w)


def test_a_backward_problem_carries_no_epilogue() -> None:
    forward = ConvProblem.of(X, W, epilogue="bias+relu")
    assert not forward.asking(Direction.BACKWARD_DATA).epilogue
    assert forward.asking(Direction.FORWARD) is forward


def test_in_layout_changes_the_layout_only() -> None:
    problem = ConvProblem.of(X, W, padding=1)
    last = problem.in_layout(Layout.NHWC)
    assert {last.x.layout, last.w.layout, last.y.layout} == {Layout.NHWC}
    assert last.in_layout(Layout.NCHW) == problem


def test_flops_count_no_products_with_padding() -> None:
    # One image, one channel: of 3 x 3 taps on 2 x 2 elements each output position meets all four elements.
    assert ConvProblem.of((1, 1, 2, 2), (1, 1, 3, 3), padding=1).macs == 16
    assert ConvProblem.of((1, 1, 2, 2), (1, 1, 1, 1), padding=5).macs == 4
    assert ConvProblem.of((2, 6, 5), (4, 3, 3), groups=2).flops == 2 * 2 * 4 * 3 * 3 * 3


def test_bytes_count_only_elements_that_are_read() -> None:
    strided = ConvProblem.of((1, 1, 9), (1, 1, 1), stride=2, dtype="fp16")
    assert strided.bytes == 2 * (5 + 1 + 5)
    fused = ConvProblem.of((2, 3, 4), (5, 3, 1), epilogue="residual+bias")
    assert fused.bytes == 4 * (24 + 15 + 40 + 5 + 40)
    assert strided.asking(Direction.BACKWARD_DATA).bytes == 2 * (5 + 1 + 9)


def test_bytes_count_no_taps_and_no_gradients_that_meet_padding_alone() -> None:
    center = ConvProblem.of((1, 4, 1, 1), (8, 4, 3, 3), padding=1)
    assert center.bytes == 4 * (4 + 8 * 4 * 1 + 8)
    assert center.asking(Direction.BACKWARD_DATA).bytes == 4 * (8 + 8 * 4 * 1 + 4)
    assert center.asking(Direction.BACKWARD_WEIGHT).bytes == 4 * (4 + 8 + 8 * 4 * 9)
    apart = ConvProblem.of((1, 4, 1), (8, 4, 1), padding=1)
    assert apart.bytes == 4 * (4 + 8 * 4 + 8 * 3)
    assert apart.asking(Direction.BACKWARD_DATA).bytes == 4 * (8 + 8 * 4 + 4)
    with_bias = replace(apart.asking(Direction.BACKWARD_WEIGHT), epilogue=Epilogue(bias=True))
    assert with_bias.bytes == 4 * (4 + 8 * 3 + 8 + 8 * 4)


def test_bytes_do_not_depend_on_gaps() -> None:
    dense = TensorSpec((2, 3, 4), DType.FP32)
    gaps = TensorSpec((2, 3, 4), DType.FP32, (100, 10, 2))
    w = TensorSpec((5, 3, 1), DType.FP32)
    made = [ConvProblem.of_specs(x, w, stride=(1,), padding=((0, 0),), dilation=(1,)) for x in (dense, gaps)]
    assert made[0].bytes == made[1].bytes


@pytest.mark.parametrize(("direction", "name"), [("forward", "y"), ("backward_data", "x"), ("backward_weight", "w")])
def test_what_is_written_does_not_overlap_itself_and_what_is_read_may(direction: str, name: str) -> None:
    text = "ic4ih8oc4kh3 dir:{} tag:x=0/0/8/1,w=0/0/3/1,y=0/0/6/1"
    overlapping = {"x": "0/0/8/1", "w": "0/0/3/1", "y": "0/0/6/1"}
    tags = ",".join(f"{each}={'nchw' if each == name else strides}" for each, strides in overlapping.items())
    assert ConvProblem.parse(f"ic4ih8oc4kh3 dir:{direction} tag:{tags}").key
    with pytest.raises(
        BadInput, match=rf"^`{name}` is written in direction {direction}, so it must not overlap itself in memory, got"
    ):
        ConvProblem.parse(text.format(direction))


def test_a_single_element_may_have_any_stride() -> None:
    assert ConvProblem.parse("ic4ih8oc1kh3 tag:x=nchw,w=nchw,y=0/0/6/1").y.layout is Layout.NCHW
    assert ConvProblem.parse("ic4ih8oc4kh3kw8 tag:x=nchw,w=nchw,y=0/12/2/0").y.layout is Layout.STRIDED
