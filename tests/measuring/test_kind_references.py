"""References of copies, matrix products and pooling: the whole and single elements agree, and mistakes are seen."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F

from convwright.core.dtype import DType
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.core.kinds.text import parse
from convwright.measuring.checking import linear as linears
from convwright.measuring.checking import pooling
from convwright.measuring.checking.data import ERROR_KINDS, Kind, kinds_of, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import reference_us, sampled_reference, whole_reference
from convwright.measuring.checking.parts import Slices
from convwright.torch_pooling import pooled
from kind_space import copy_problems, linear_problems, pool_problems

CPU = torch.device("cpu")


@settings(max_examples=40)
@given(copy_problems((DType.FP64, DType.FP32)))
def test_a_copy_is_what_pad_makes(problem: CopyProblem) -> None:
    given = operands(problem, Kind.NORMAL, CPU)
    right = F.pad(given["x"], [side for pair in reversed(problem.margins) for side in pair]).double()
    assert torch.equal(whole_reference(problem, given).y64, right)
    some = sampled_reference(problem, given)
    assert torch.equal(some.y64, some.sample.take("y", right))


@settings(max_examples=40)
@given(linear_problems((DType.FP64,)))
def test_a_product_is_what_pytorch_makes(problem: LinearProblem) -> None:
    given = operands(problem, Kind.NORMAL, CPU)
    right = F.linear(given["x"], given["w"], given.get("bias"))
    right = right + given["residual"] if "residual" in given else right
    linear = LinearProblem(problem.x, problem.w, problem.y)
    only = {role: given[role] for role in ("x", "w")}
    assert whole_reference(linear, only).y64.allclose(F.linear(given["x"], given["w"]))
    whole, some = whole_reference(problem, given), sampled_reference(problem, given)
    assert some.y64.allclose(some.sample.take("y", whole.y64))
    assert some.scale.allclose(some.sample.take("y", whole.scale))
    if problem.epilogue.activation == "none":
        assert whole.y64.allclose(right)


@settings(max_examples=60)
@given(pool_problems((DType.FP64,)))
def test_pooling_is_what_pytorch_makes(problem: PoolProblem) -> None:
    sizes = zip(problem.x.shape[2:], problem.taps, strict=True)
    if problem.pooling is Pooling.AVG and problem.rank == 3 and any(size < window for size, window in sizes):
        return  # PyTorch does not average so small a volume
    for kind in (Kind.NORMAL, Kind.INFINITY, Kind.NAN, Kind.LARGE):
        given = operands(problem, kind, CPU)
        right, whole, some = (
            pooled(problem, given["x"]),
            whole_reference(problem, given),
            sampled_reference(problem, given),
        )
        assert whole.y64.allclose(right, rtol=1e-13, equal_nan=True)
        assert some.y64.allclose(some.sample.take("y", whole.y64), rtol=1e-13, equal_nan=True)
        assert some.scale.allclose(some.sample.take("y", whole.scale), equal_nan=True)
        if problem.pooling is Pooling.MAX:
            assert torch.equal(whole.y64.nan_to_num(nan=7.0), right.nan_to_num(nan=7.0))
        else:
            positive = pooled(problem, given["x"].abs())
            assert whole.scale.allclose(positive, rtol=1e-13, equal_nan=True)


def test_a_window_of_padding_alone_has_minus_infinity() -> None:
    problem = parse("pool max ic1iw4 kw2pw1dw4sw1")
    assert whole_reference(problem, operands(problem, Kind.NORMAL, CPU)).y64.tolist() == [[[-torch.inf]]]


def test_large_windows_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("pool max mb3ic5ih20 kh7sh2ph3", "pool avg mb3ic5ih20 kh7sh2ph3 include_pad:0"):
        problem = parse(text)
        given = operands(problem, Kind.NORMAL, CPU)
        monkeypatch.undo()
        whole = whole_reference(problem, given)
        monkeypatch.setattr(pooling, "_AT_ONCE", 5000)
        assert whole_reference(problem, given).y64.allclose(whole.y64)
        monkeypatch.setattr(pooling, "_MOST_READ", {"cpu": 2**14})
        part = whole_reference(problem, given)
        assert part.y64.numel() < 700 < whole.y64.numel()
        assert part.y64.allclose(part.sample.take("y", whole.y64))
        assert 0 < reference_us(problem, CPU) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "linear mb33ic64oc48 ep:residual+bias",
        "copy mb4ic8ih9 nchw->nhwc pad:h=1",
        "pool max mb4ic8ih9 kh3sh2ph1",
        "pool avg mb4ic8ih9 kh3sh2ph1",
    ],
)
@pytest.mark.parametrize("reference", [whole_reference, sampled_reference])
def test_one_wrong_corner_is_seen(text: str, reference) -> None:  # type: ignore[no-untyped-def]
    problem = parse(text)
    found = reference(problem, operands(problem, Kind.NORMAL, CPU))
    if reference is whole_reference:
        right = found.y64.float()
        assert errors_of(right, found)[1] <= 1
        right.view(-1)[-1] += 1
        assert errors_of(right, found)[1] > 1000
    else:
        places = {tuple(int(place[each]) for place in found.sample.places) for each in range(len(found.y64))}
        assert tuple(size - 1 for size in problem.output.shape) in places
        assert (0,) * len(problem.output.shape) in places


def test_large_products_are_looked_at_on_some_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse("linear mb40ic16oc30 ep:residual+bias+relu")
    given = operands(problem, Kind.NORMAL, CPU)
    whole = whole_reference(problem, given)
    monkeypatch.setattr(linears, "_MOST_ELEMENTS", 300)
    part = whole_reference(problem, given)
    assert isinstance(part.sample, Slices)
    assert part.y64.numel() < 600
    assert part.y64.allclose(part.sample.take("y", whole.y64))
    assert 0 < reference_us(problem, CPU) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "linear mb33ic64oc48 dt:fp16",
        "copy mb4ic8ih9 nchw->nhwc dt:int8",
        "copy ic9 dt:fp32->fp16",
        "pool max mb4ic8ih9 kh2 dt:bf16",
    ],
)
def test_data_is_of_its_kind(text: str) -> None:
    problem = parse(text)
    made = {kind: operands(problem, kind, CPU)["x"].double() for kind in kinds_of(problem, ERROR_KINDS)}
    assert (made[Kind.POSITIVE] >= 0).any()
    assert made[Kind.NORMAL].std() > 0.1
    if Kind.NAN in made:
        assert made[Kind.NAN].isnan().sum() == 1
        assert made[Kind.INFINITY].isinf().sum() == 1
    assert made[Kind.LARGE].abs().max() > made[Kind.NORMAL].abs().max() or problem.dtype is DType.INT8


def test_integers_are_exact_in_every_order() -> None:
    problem = parse("linear mb8ic512oc8 dt:fp16 ep:residual")
    given = operands(problem, Kind.INTEGERS, CPU)
    right = whole_reference(problem, given)
    assert right.scale.max() <= 2**11
    assert right.y64.abs().max() > 0
    assert torch.equal(right.y64, right.y64.half().double())
