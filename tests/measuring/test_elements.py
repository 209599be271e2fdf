"""Sampled elements are those of the full reference, and they lie where wrong results show."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from math import gcd, inf, isfinite

import pytest
import torch
from torch import Tensor

from convwright.core.direction import Direction, Role
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import ERROR_KINDS, Kind, operands
from convwright.measuring.checking.drawing import BLOCK, normal
from convwright.measuring.checking.elements import Elements, _rim, _rim_count
from convwright.measuring.checking.error import ErrorCheck, errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.checking.reference import Reference

PROBLEMS = [
    "mb2ic6iw19oc8kw5pw2sw2",
    "mb2ic6ih11iw9oc8kh3kw2ph1",
    "mb2ic6ih11iw9oc8kh3kw2ph1 tag:nhwc",
    "g2mb2ic6ih12oc8kh3ph2dh1sh2",
    "g6ic6ih8oc12kh3ph1",
    "mb2ic3id5ih6iw7oc4kd2kh3kw3pd1ph1pw0",
    "ic4ih8oh4oc3kh3sh2ph1 flip:1",
    "ic4ih9oc3kh2kw3ph1 flip:1",
    "mb3ic4ih30oc4kh3ph1",
]
EPILOGUE = "mb2ic6ih11oc8kh3ph1 ep:residual+bias+relu"


def whole(problem: ConvProblem, tensors: dict[Role, Tensor], elements: Elements) -> tuple[Tensor, Tensor]:
    reference = Reference.of(problem, tensors)
    assert reference.y64.shape == problem.output.shape
    role = problem.direction.output
    return elements.take(role, reference.y64), elements.take(role, reference.scale)


@pytest.mark.parametrize("text", [*PROBLEMS, EPILOGUE])
@pytest.mark.parametrize("direction", Direction)
def test_sampled_elements_are_those_of_the_whole(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    for kind in ERROR_KINDS:
        tensors = operands(problem, kind, "cpu", seed=3)
        sampled = sampled_reference(problem, tensors, seed=5)
        assert isinstance(sampled.sample, Elements)
        y64, scale = whole(problem, tensors, sampled.sample)
        torch.testing.assert_close(sampled.y64, y64, rtol=1e-11, atol=1e-11 * _size(y64), equal_nan=True)
        torch.testing.assert_close(sampled.scale, scale, rtol=1e-11, atol=1e-11 * _size(scale), equal_nan=True)


def _size(values: Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


@pytest.mark.parametrize("direction", Direction)
def test_operands_may_be_slices_of_larger_ones(direction: Direction) -> None:
    problem = ConvProblem.parse("mb2ic4ih9oc4kh3ph1").asking(direction)
    spec = replace(problem.x, strides=(4000, 200, 20, 2))
    problem = replace(problem, x=spec)
    tensors = operands(problem, Kind.NORMAL, "cpu")
    sampled = sampled_reference(problem, tensors)
    assert isinstance(sampled.sample, Elements)
    torch.testing.assert_close(sampled.y64, whole(problem, tensors, sampled.sample)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD_DATA])
@pytest.mark.parametrize("text", ["mb2ic4ih9iw12oc4kh3ph1", "mb2ic4iw40oc4kw3pw1", "ic2id6ih7iw8oc2kd3kh3kw3"])
def test_every_corner_and_edge_is_looked_at(text: str, direction: Direction) -> None:
    shape = ConvProblem.parse(text).asking(direction).output.shape
    spatial = Elements.of(ConvProblem.parse(text).asking(direction), "cpu").places[2:]
    kinds = [(place > 0).int() + (place == size - 1).int() for place, size in zip(spatial, shape[2:], strict=True)]
    assert len(set(zip(*(kind.tolist() for kind in kinds), strict=True))) == 3 ** len(kinds)


def rim_of(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All places with a first or a last position in any dimension, in order."""
    places = product(*map(range, sizes))
    return [place for place in places if any(at in (0, size - 1) for at, size in zip(place, sizes, strict=True))]


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD_DATA])
@pytest.mark.parametrize(
    "text", ["mb2ic64ih56oc64kh3ph1", "mb2ic3ih112oc16kh5ph2", "ic2id9ih9oc2kh3ph1", "ic4iw30oc4kw3"]
)
def test_every_place_on_the_rim_is_looked_at(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    sizes = problem.output.shape[2:]
    rim = set(rim_of(sizes))
    places = Elements.of(problem, "cpu").places
    assert rim <= set(zip(*(place.tolist() for place in places[2:]), strict=True))
    assert len(set(places[1].tolist())) == problem.output.shape[1], "in every channel"


def test_where_not_all_of_the_rim_is_affordable_it_is_looked_at_all_around() -> None:
    problem = ConvProblem.parse("mb1ic128oc64ih112kh3ph1")  # 455 elements of long sums, and 444 on the rim
    rows, columns = (place.tolist()[384:] for place in Elements.of(problem, "cpu").places[2:])
    assert 50 < len(rows) <= 71
    for across, along in ((rows, columns), (columns, rows)):
        for end in (0, 111):
            side = [at for at, other in zip(along, across, strict=True) if other == end]
            assert len(side) >= 10
            assert max(side) - min(side) > 80


@pytest.mark.parametrize("sizes", [(1,), (2,), (7,), (1, 4), (2, 2), (3, 1, 3), (1, 1, 9), (4, 2, 3), (5, 4, 3)])
@pytest.mark.parametrize("step", [1, 3])
def test_the_rim_is_told_by_counting(sizes: tuple[int, ...], step: int) -> None:
    rim = rim_of(sizes)
    assert _rim_count(sizes) == len(rim)
    counted = _rim(sizes, torch.arange(0, len(rim), step))
    assert list(zip(*(places.tolist() for places in counted), strict=True)) == rim[::step]


def test_an_image_of_any_size_is_looked_at_as_fast() -> None:
    begun = time.process_time()
    rows, columns = Elements.of(ConvProblem.parse("ic1ih30000oc1kh3ph1"), "cpu").places[2:]
    assert time.process_time() - begun < 5, "nothing goes through its 900 million places"
    rim = (rows == 0) | (rows == 29999) | (columns == 0) | (columns == 29999)
    assert rim[384:].all()
    assert len(rim) > 2000


def test_one_wrong_place_on_the_rim_shows() -> None:
    problem = ConvProblem.parse("mb2ic8ih28oc8kh3ph1")
    tensors = operands(problem, Kind.NORMAL, "cpu")
    sampled = sampled_reference(problem, tensors)
    right = Reference.of(problem, tensors).y64.float()
    for place in ((0, 11), (27, 5), (13, 0), (20, 27)):
        wrong = right.clone()
        wrong[:, :, place[0], place[1]] = 0.0
        assert errors_of(wrong, sampled)[1] > 1e3


def test_every_tap_of_a_weight_gradient_is_looked_at() -> None:
    problem = ConvProblem.parse("mb2ic8ih9oc8kh3ph1 dir:backward_weight")
    places = Elements.of(problem, "cpu").places
    assert len(set(zip(*(place.tolist() for place in places[2:]), strict=True))) == 9


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("text", ["mb4ic16ih56oc16kh3ph1", "mb3ic8ih40oc8kh5sh2ph2", "g8mb2ic8ih30oc8kh3ph1"])
def test_the_one_infinity_is_met_and_so_is_what_lies_around_it(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    found = sampled_reference(problem, operands(problem, Kind.INFINITY, "cpu")).y64.isfinite()
    assert 0 < int(found.sum()) < found.numel()


@pytest.mark.parametrize("kind", [Kind.INFINITY, Kind.NAN])
def test_an_infinity_spread_by_a_fourier_transform_shows(kind: Kind) -> None:
    problem = ConvProblem.parse("mb4ic16ih32oc16kh3ph1")
    check = ErrorCheck(problem, "cpu", kinds=[kind], reference=sampled_reference)

    def spread(tensors: dict[Role, Tensor]) -> Tensor:
        image, kernel = (torch.fft.rfft2(tensors[role], s=(34, 34)) for role in (Role.X, Role.W))
        y = torch.fft.irfft2(torch.einsum("nchw,kchw->nkhw", image, kernel.conj()), s=(34, 34))
        return torch.roll(y, (1, 1), (2, 3))[..., :32, :32]

    assert check.errors(spread)[0].scaled_max == inf
    right = check.errors(lambda t: torch.conv2d(t[Role.X], t[Role.W], padding=1))[0]
    assert isfinite(right.scaled_max)


@pytest.mark.parametrize("direction", Direction)
def test_a_wrong_border_shows(direction: Direction) -> None:
    problem = ConvProblem.parse("mb2ic8ih28oc8kh3ph1").asking(direction)
    tensors = operands(problem, Kind.NORMAL, "cpu")
    sampled = sampled_reference(problem, tensors)
    right = Reference.of(problem, tensors).y64.float()
    assert errors_of(right, sampled)[1] <= 1
    for dim in range(right.dim()):
        for place in (0, right.shape[dim] - 1):
            wrong = right.clone()
            wrong.select(dim, place).zero_()
            assert errors_of(wrong, sampled)[1] > 1e3


def test_long_reductions_get_fewer_elements_and_none_is_cut() -> None:
    problem = ConvProblem.parse("mb16ic4ih64oc4kh3ph1 dir:backward_weight")
    tensors = operands(problem, Kind.NORMAL, "cpu")
    sampled = sampled_reference(problem, tensors)
    assert sampled.y64.shape == (16,)
    assert isinstance(sampled.sample, Elements)
    torch.testing.assert_close(sampled.y64, whole(problem, tensors, sampled.sample)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("direction", Direction)
def test_an_empty_batch_has_no_error(direction: Direction) -> None:
    problem = replace(ConvProblem.of((0, 4, 5, 5), (4, 4, 3, 3)), direction=direction)
    zeros = torch.zeros(problem.output.shape)
    check = ErrorCheck(problem, "cpu", reference=sampled_reference)
    assert all((e.relative_l2, e.scaled_max) == (0, 0) for e in check.errors(lambda _: zeros))


def test_large_operands_repeat_a_block_whose_length_divides_no_stride() -> None:
    assert all(BLOCK % divisor for divisor in range(2, 512)), "its length is prime"
    assert gcd(BLOCK, 2 * 3 * 5 * 7 * 64 * 224 * 224) == 1
    drawn = normal((3, BLOCK), torch.Generator().manual_seed(1), torch.float32)
    assert drawn.shape == (3, BLOCK)
    assert torch.equal(drawn[0], drawn[2])
    image = normal((2, 64, 224, 224), torch.Generator().manual_seed(1), torch.float32)
    for dim in range(4):
        assert (image == image.roll(1, dim)).double().mean() < 1e-4
    small = normal((7, 9), torch.Generator().manual_seed(1), torch.float64)
    assert torch.equal(
        small, torch.randn(63, generator=torch.Generator().manual_seed(1), dtype=torch.float64).view(7, 9)
    )
