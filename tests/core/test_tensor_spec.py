"""Layouts are told by strides; the stride of a dimension of size 1 says nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from convwright.core.dtype import DType
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.errors import BadInput
from convwright.tensors import spec_of

SHAPES = [(2, 3, 5), (2, 3, 4, 5), (2, 3, 4, 5, 6)]


@pytest.mark.parametrize("shape", SHAPES)
def test_dense_strides_are_pytorchs(shape: tuple[int, ...]) -> None:
    given = torch.empty(shape)
    assert dense_strides(shape) == given.stride()
    if len(shape) > 3:
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        assert dense_strides(shape, Layout.NHWC) == given.to(memory_format=last).stride()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_dense_layouts_are_recognised(shape: tuple[int, ...], layout: Layout) -> None:
    assert TensorSpec(shape, DType.FP32, dense_strides(shape, layout)).layout is layout


def test_a_slice_is_strided() -> None:
    buffer = torch.empty(2, 8, 4, 5)
    spec = spec_of(buffer[:, 2:5])
    assert (spec.layout, spec.strides) == (Layout.STRIDED, (160, 20, 5, 1))
    assert spec_of(buffer[0:1]).layout is Layout.NCHW
    assert spec_of(buffer.transpose(2, 3)).layout is Layout.STRIDED


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 1, 4, 5), (20, 1, 5, 1)),  # one channel: channels last and first are the same memory
        ((1, 3, 4, 5), (999, 20, 5, 1)),  # one image of a larger batch
        ((2, 3, 1, 5), (15, 5, 77, 1)),
        ((2, 3, 1, 1), (3, 1, 3, 3)),  # PyTorch's channels last with one pixel
    ],
)
def test_strides_of_single_elements_say_nothing(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    spec = TensorSpec(shape, DType.FP32, strides)
    assert spec.layout is Layout.NCHW
    assert spec == TensorSpec(shape, DType.FP32)
    assert hash(spec) == hash(TensorSpec(shape, DType.FP32))


@given(st.lists(st.integers(1, 3), min_size=3, max_size=5), st.sampled_from([Layout.NCHW, Layout.NHWC]), st.data())
def test_equal_addresses_are_equal_specs(sizes: list[int], layout: Layout, data: st.DataObject) -> None:
    shape, dense = tuple(sizes), dense_strides(tuple(sizes), layout)
    pairs = zip(shape, dense, strict=True)
    noise = tuple(data.draw(st.integers(0, 99)) if size == 1 else stride for size, stride in pairs)
    assert TensorSpec(shape, DType.FP32, noise) == TensorSpec(shape, DType.FP32, dense)


def test_bytes_and_span() -> None:
    gaps = TensorSpec((2, 3, 4), DType.FP16, (100, 10, 2))
    assert (gaps.numel, gaps.nbytes, gaps.span_bytes) == (24, 48, 2 * (100 + 20 + 6 + 1))
    assert TensorSpec((0, 3, 4), DType.FP32).span_bytes == 0


def test_dense_is_well_aligned() -> None:
    spec = TensorSpec((2, 3, 4), DType.FP16, (100, 10, 2), alignment=2).dense(Layout.NHWC)
    assert (spec.strides, spec.alignment) == ((12, 1, 3), 16)


def test_alignment_is_that_of_the_first_element() -> None:
    buffer = torch.empty(64)
    assert buffer.data_ptr() % 64 == 0
    assert [spec_of(buffer[i : i + 12].view(1, 3, 4)).alignment for i in (0, 1, 2, 4)] == [16, 4, 8, 16]


@pytest.mark.parametrize(
    ("shape", "strides", "words"),
    [((2, -3, 4), (), r"negative, got shape \(2, -3, 4\)"), ((2, 3, 4), (1, 2), r"one entry per dimension .*\(1, 2\)")],
)
def test_impossible_specs_are_refused(shape: tuple[int, ...], strides: tuple[int, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TensorSpec(shape, DType.FP32, strides)


def test_integers_and_complex_numbers_are_refused() -> None:
    with pytest.raises(BadInput, match=r"fp64, fp32, fp16, bf16, int8, fp8_e4m3, fp8_e5m2, got torch\.int64"):
        spec_of(torch.ones(1, 1, 3, dtype=torch.int64))


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((1, 8, 2, 2), (0, 0, 1, 1), True),
        ((2, 3, 4, 5), (0, 20, 5, 1), True),
        ((2, 3, 4, 5), (60, 20, 4, 1), True),  # windows that share a border
        ((1, 1, 4, 5), (1, 1, 2, 3), True),
        ((1, 1, 2, 3), (1, 1, 3, 2), False),  # 0 2 4 and 3 5 7
        ((1, 3, 1, 5), (0, 5, 0, 1), False),  # a single element may have any stride
        ((1, 1, 1, 1), (0, 0, 0, 0), False),
        ((0, 3, 4, 5), (0, 0, 0, 0), False),
        ((2, 3, 4, 5), (600, 200, 10, 2), False),
    ],
)
def test_elements_that_share_memory(shape: tuple[int, ...], strides: tuple[int, ...], overlaps: bool) -> None:
    assert TensorSpec(shape, DType.FP32, strides).overlaps_itself is overlaps


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), min_size=2, max_size=2))
def test_two_dimensions_share_memory_where_two_offsets_are_one(dims: list[tuple[int, int]]) -> None:
    (a, a_step), (b, b_step) = dims
    offsets = [i * a_step + j * b_step for i in range(a) for j in range(b)]
    spec = TensorSpec((a, b), DType.FP32, (a_step, b_step))
    assert spec.overlaps_itself is (len(set(offsets)) < len(offsets))
