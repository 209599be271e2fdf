"""The reference of a resize: what ``F.interpolate`` computes, also of infinities, in both layouts."""

from __future__ import annotations

from math import floor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from convwright.core.dtype import DType
from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.kinds.text import parse
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.measuring.checking import resizing
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import reference_us, sampled_reference, whole_reference
from convwright.measuring.checking.parts import Slices
from convwright.tensors import torch_dtype
from kind_space import resize_problems

CPU = torch.device("cpu")
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def interpolated(problem: ResizeProblem, x: Tensor, **given: object) -> Tensor:
    """What PyTorch makes, by sizes unless scales are given."""
    given = given or {"size": problem.y.shape[2:]}
    if problem.interpolation is Interpolation.LINEAR:
        given |= {"mode": MODES[len(problem.sizes)], "align_corners": problem.aligned_corners}
    return F.interpolate(x, **given)  # type: ignore[arg-type]


@settings(max_examples=50)
@given(resize_problems((DType.FP64, DType.FP32)).filter(lambda problem: not problem.scales))
def test_it_is_what_pytorch_makes(problem: ResizeProblem) -> None:
    given = operands(problem, Kind.NORMAL, CPU)
    right, found = interpolated(problem, given["x"]), whole_reference(problem, given)
    if problem.interpolation is Interpolation.NEAREST:
        assert torch.equal(found.y64, right.double())
    assert errors_of(right, found)[1] <= problem.error_bound(None)  # type: ignore[arg-type]
    assert torch.equal(resizing.resized(problem, given["x"]), found.y64)
    some = sampled_reference(problem, given)
    assert torch.equal(some.y64, some.sample.take("y", found.y64))
    assert torch.equal(some.scale, some.sample.take("y", found.scale))


@settings(max_examples=100)
@given(
    st.integers(1, 300),
    st.floats(0.2, 4.0),
    st.sampled_from(("nearest", "linear")),
    st.sampled_from(("nchw", "nhwc")),
    st.sampled_from((DType.FP64, DType.FP32)),
)
def test_scales_decide_which_pixels_are_read(size: int, scale: float, how: str, layout: str, dtype: DType) -> None:
    """Each pixel holds its own place, so that the result shows positions, which are as exact as PyTorch's."""
    out = floor(size * scale)
    if not out:
        return
    specs = [TensorSpec((1, 3, each, 2), dtype) for each in (size, out)]
    try:
        problem = ResizeProblem(specs[0], specs[1], Interpolation(how), scales=(scale, 1.0))
    except BadInput:
        assert out in (size, 2 * size) or dtype is DType.FP64
        return
    x = torch.arange(size, dtype=torch_dtype(dtype)).reshape(1, 1, -1, 1).expand(1, 3, -1, 2)
    x = x.contiguous(memory_format=torch.channels_last if layout == "nhwc" else torch.contiguous_format)
    right, found = interpolated(problem, x, scale_factor=(scale, 1.0)), resizing.resized(problem, x)
    assert right.shape == found.shape
    if how == "nearest":
        assert torch.equal(found, right.double())
    else:
        assert torch.allclose(found, right.double(), rtol=4 * dtype.roundoff, atol=4 * dtype.roundoff)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "text",
    [
        "resize linear ic3ih5 oh9",
        "resize linear ic3ih9 oh5 align:corners",
        "resize linear ic3ih5iw6 oh9ow6",
        "resize linear ic3ih5iw6 oh10ow12 align:corners",
        "resize linear ic3ih5iw6 oh5ow6",
        "resize nearest ic3ih5 oh8",
        "resize linear ic3id4 od7",
        "resize linear ic3iw5 ow9",
    ],
)
def test_infinities_and_nans_are_pytorchs(text: str, layout: str) -> None:
    """Also pixels whose weight is zero are multiplied by it; where a size stays, a pixel is, and no neighbour."""
    problem = parse(f"{text} tag:{layout}")
    assert isinstance(problem, ResizeProblem)
    for kind in (Kind.INFINITY, Kind.NAN):
        given = operands(problem, kind, CPU)
        found, right = whole_reference(problem, given), interpolated(problem, given["x"])
        assert errors_of(right, found)[1] <= 1.01
        assert not found.y64.isfinite().all() or problem.y.numel < problem.x.numel


def test_one_wrong_weight_is_seen() -> None:
    problem = parse("resize linear mb2ic4ih9 oh16")
    assert isinstance(problem, ResizeProblem)
    given = operands(problem, Kind.NORMAL, CPU)
    found = whole_reference(problem, given)
    assert errors_of(interpolated(problem, given["x"]), found)[1] <= 1
    aligned = F.interpolate(given["x"], size=16, mode="bilinear", align_corners=True)
    assert errors_of(aligned, found)[1] > 1000


def test_large_images_are_looked_at_on_some_places(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse("resize linear mb2ic8ih20 oh30")
    assert isinstance(problem, ResizeProblem)
    given = operands(problem, Kind.NORMAL, CPU)
    whole = whole_reference(problem, given)
    monkeypatch.setattr(resizing, "MOST_ELEMENTS", 2000)
    part = whole_reference(problem, given)
    assert isinstance(part.sample, Slices)
    assert part.y64.numel() < 1500
    assert torch.equal(part.y64, part.sample.take("y", whole.y64))
    assert 0 < reference_us(problem, CPU) < 1000
