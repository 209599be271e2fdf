from ctypes import byref, c_int

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright.backends.cudnn.classic import descriptors
from convwright.backends.cudnn.classic import operands as classic_operands
from convwright.backends.cudnn.library import Library, Missing, load
from convwright.core.direction import Direction
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec

PROBLEMS = [
    ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3)),
    ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2)),
    ConvProblem.of((2, 6, 9, 11), (4, 3, 3, 3), groups=2, padding=1),
    ConvProblem.of((2, 6, 9, 11), (6, 1, 5, 5), groups=6, padding=2, layout="nhwc", dtype="fp16"),
    ConvProblem.of((1, 1, 32, 32), (8, 1, 3, 3), layout="nhwc"),
    ConvProblem.of((1, 8, 1, 1), (8, 8, 1, 1), dtype="bf16"),
    ConvProblem.of((2, 3, 20), (4, 3, 5), stride=2, padding=2, dtype="fp64"),
    ConvProblem.of((2, 4, 20), (4, 2, 5), dilation=3, groups=2, layout="nhwc"),
    ConvProblem.of((2, 3, 5, 6, 7), (4, 3, 3, 2, 1), stride=(1, 2, 3), padding=(1, 0, 2)),
    ConvProblem.of((2, 4, 5, 6, 7), (4, 4, 3, 3, 3), layout="nhwc", dtype="fp16"),
    ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), flip=True),
]
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=str)


@pytest.fixture(scope="module")
def cudnn() -> Library:
    found = load()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


def as_2d(shape):
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def output_shape(cudnn, problem):
    described = descriptors.describe(cudnn, problem, Arithmetic.FP32)
    sizes = (c_int * len(as_2d(problem.y.shape)))()
    cudnn.call(
        "cudnnGetConvolutionNdForwardOutputDim", described.convolution, described.x, described.w, len(sizes), sizes
    )
    return tuple(sizes)


@each_problem
def test_cudnn_computes_the_same_output_shape(cudnn, problem):
    assert output_shape(cudnn, problem) == as_2d(problem.y.shape)


@given(data=st.data(), rank=st.integers(1, 3), groups=st.integers(1, 3), layout=st.sampled_from(["nchw", "nhwc"]))
def test_cudnn_computes_the_same_output_shape_everywhere(cudnn, data, rank, groups, layout):
    taps, stride, padding, dilation = (
        data.draw(st.tuples(*[st.integers(low, 4)] * rank)) for low in (1, 1, 0, 1)
    )  # fmt: skip
    reaches = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    sizes = [data.draw(st.integers(max(1, reach - 2 * pad), 20)) for reach, pad in zip(reaches, padding, strict=True)]
    n, c, k = (data.draw(st.integers(1, 4)) for _ in range(3))
    problem = ConvProblem.of(
        (n, c * groups, *sizes), (k * groups, c, *taps),
        stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
    )  # fmt: skip
    assert output_shape(cudnn, problem) == as_2d(problem.y.shape)


def tensor_as_told(cudnn, descriptor, dims):
    kind, count, shape, strides = c_int(), c_int(), (c_int * dims)(), (c_int * dims)()
    cudnn.call("cudnnGetTensorNdDescriptor", descriptor, dims, byref(kind), byref(count), shape, strides)
    assert count.value == dims
    return kind.value, tuple(shape), tuple(strides)


def test_tensors_keep_their_true_strides(cudnn):
    sliced = TensorSpec((2, 3, 4, 5), DType.FP16, (1000, 50, 10, 1))
    made = descriptors.tensor_descriptor(cudnn, sliced, Layout.NCHW)
    assert tensor_as_told(cudnn, made, 4) == (2, (2, 3, 4, 5), (1000, 50, 10, 1))


@pytest.mark.parametrize(
    ("shape", "layout", "strides"),
    [
        ((2, 3, 7), Layout.NCHW, (21, 7, 7, 1)),
        ((2, 3, 7), Layout.NHWC, (21, 1, 21, 3)),
        ((2, 1, 4, 5), Layout.NHWC, (20, 1, 5, 1)),
        ((2, 3, 1, 1), Layout.NHWC, (3, 1, 3, 3)),
        ((2, 3, 1, 1), Layout.NCHW, (3, 1, 1, 1)),
    ],
)
def test_dense_tensors_are_told_as_cudnn_knows_their_layout(cudnn, shape, layout, strides):
    made = descriptors.tensor_descriptor(cudnn, TensorSpec(shape, DType.FP32).dense(layout), layout)
    assert tensor_as_told(cudnn, made, 4) == (0, as_2d(shape), strides)


@pytest.mark.parametrize("dtype", IN_PYTORCH)
@pytest.mark.parametrize(("layout", "number"), [(Layout.NCHW, 0), (Layout.NHWC, 1)])
def test_filters_keep_dtype_and_layout(cudnn, dtype, layout, number):
    made = descriptors.filter_descriptor(cudnn, TensorSpec((4, 3, 5), dtype), layout)
    kind, format_, count, shape = c_int(), c_int(), c_int(), (c_int * 4)()
    cudnn.call("cudnnGetFilterNdDescriptor", made, 4, byref(kind), byref(format_), byref(count), shape)
    assert (format_.value, count.value, tuple(shape)) == (number, 4, (4, 3, 1, 5))
    assert kind.value == {DType.FP32: 0, DType.FP64: 1, DType.FP16: 2, DType.BF16: 9}[dtype]


@pytest.mark.parametrize(
    ("dtype", "arithmetic", "math", "accumulator"),
    [
        ("fp32", Arithmetic.FP32, 3, 0),
        ("fp32", Arithmetic.TF32, 0, 0),
        ("fp16", Arithmetic.FP16_ACC32, 1, 0),
        ("bf16", Arithmetic.BF16_ACC32, 1, 0),
        ("fp64", Arithmetic.FP64, 0, 1),
    ],
)
def test_convolutions_keep_all_they_are_told(cudnn, dtype, arithmetic, math, accumulator):
    problem = ConvProblem.of((1, 4, 20), (4, 2, 3), stride=2, padding=4, dilation=3, groups=2, dtype=dtype, flip=True)
    made = descriptors.convolution_descriptor(cudnn, problem, arithmetic)
    count, mode, kind, groups, math_type = (c_int() for _ in range(5))
    padding, stride, dilation = ((c_int * 2)() for _ in range(3))
    cudnn.call(
        "cudnnGetConvolutionNdDescriptor", made, 2, byref(count), padding, stride, dilation, byref(mode), byref(kind)
    )
    cudnn.call("cudnnGetConvolutionGroupCount", made, byref(groups))
    cudnn.call("cudnnGetConvolutionMathType", made, byref(math_type))
    assert (tuple(padding), tuple(stride), tuple(dilation)) == ((0, 4), (1, 2), (1, 3))
    assert (groups.value, mode.value, math_type.value, kind.value) == (2, 0, math, accumulator)


def test_the_weight_follows_the_activations_layout():
    nhwc = ConvProblem.of((2, 1, 8, 8), (4, 1, 3, 3), layout="nhwc")
    assert nhwc.x.layout is Layout.NCHW, "one channel: its strides are those of both layouts"
    assert classic_operands.filter_layout(nhwc) is Layout.NHWC
    assert classic_operands.filter_layout(ConvProblem.of((2, 3, 8, 8), (4, 3, 3, 3))) is Layout.NCHW
    assert classic_operands.filter_layout(ConvProblem.of((2, 3, 3, 3), (4, 3, 3, 3))) is Layout.NCHW


def specs(x_strides=(), w_strides=(), n=2):
    return TensorSpec((n, 3, 8, 8), DType.FP32, x_strides), TensorSpec((4, 3, 3, 3), DType.FP32, w_strides)


def conv(*of_specs, **options):
    window = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    return ConvProblem.of_specs(*of_specs, **{**window, **options})


REFUSED = [
    (conv(*specs(), padding=((0, 1), (0, 1))), "needs equal padding on both sides"),
    (conv(*specs(n=0)), "empty"),
    (conv(*specs((2**31, 64, 8, 1))), "up to 2,147,483,647"),
    (conv(*specs((192, 0, 8, 1))), "stride of 0"),
    (conv(*specs(w_strides=(54, 18, 6, 2)), direction=Direction.BACKWARD_WEIGHT), "gradient dense in nchw"),
]


@pytest.mark.parametrize(("problem", "reason"), REFUSED)
def test_what_descriptors_cannot_say_is_refused_in_words(problem, reason):
    assert reason in classic_operands.objection(problem)


@each_problem
def test_everything_else_is_described(problem):
    assert classic_operands.objection(problem) is None
