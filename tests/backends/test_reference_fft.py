"""``reference/fft`` and ``reference/fft-tiled`` against PyTorch in float64, within what rounding explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import log2, prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from backends.reference_algorithm import CPU, candidate, compute, in_dtype, offered
from convwright.backends.reference.backend import Reference
from convwright.backends.reference.finite import FinitePlan
from convwright.backends.reference.frequency import fourier, spectra
from convwright.backends.reference.frequency.fourier import Fourier, lines
from convwright.backends.reference.frequency.overlap import quick_length
from convwright.backends.reference.frequency.plan import FourierPlan
from convwright.core import profiles
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction, Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from problem_space import operands, oracle, problems, run

FFT, TILED = "reference/fft", "reference/fft-tiled"
# Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2: a transform of n elements errs by log2(n) times
# this many roundoffs, with twiddle factors as good as they can be.
_PER_LEVEL = 1 + 4 * 2**0.5
# Where activations are steepest: GELU's slope is at most 1.13, SiLU's and hardswish's less than 1.5.
_STEEPEST = 1.5


def tiled(problem: ConvProblem, tile: int) -> Candidate:
    """``reference/fft-tiled`` with small tiles, of which small problems have several."""
    cut = Fourier(problem, [line.tiled(tile) for line in lines(problem)])
    return replace(candidate(problem, TILED), config=(("tile", tile),), workspace_bytes=cut.workspace_bytes)


def bound(problem: ConvProblem, given: dict[Role, Tensor], tile: int | None) -> Tensor:
    """How far each element of the result may be from the exact one.

    Two transforms go in and one goes back. By Parseval and Cauchy-Schwarz an error of relative size e in a spectrum is
    at most e · Σ ‖a‖ ‖b‖ in an element of the result, over the planes a and b whose correlations are added up.
    """
    cut = [line.whole() if tile is None else line.tiled(tile) for line in lines(problem)]
    levels = log2(prod(line.length for line in cut)) + 1
    first, second = problem.direction.operands
    norms = {role: given[role].double().flatten(2).norm(dim=2)[:, :, None] for role in (first, second)}
    flat = ConvProblem.of((problem.n, problem.c, 1), (problem.k, problem.c // problem.groups, 1), groups=problem.groups)
    planes = oracle(flat.asking(problem.direction), norms).view(*problem.output.shape[:2], *[1] * problem.rank)
    added = {
        Direction.FORWARD: problem.c // problem.groups,
        Direction.BACKWARD_DATA: problem.k // problem.groups,
        Direction.BACKWARD_WEIGHT: problem.n * prod(line.count for line in cut),
    }[problem.direction]
    roundoff = 2.0**-53 if problem.dtype is DType.FP64 else 2.0**-24
    allowed = (3 * _PER_LEVEL * levels + 2 * (added + 4)) * roundoff * planes
    linear = replace(problem, epilogue=replace(problem.epilogue, activation=Activation.NONE))
    exact = oracle(linear, {role: tensor.abs() for role, tensor in given.items()})
    return _STEEPEST * (allowed + 4 * problem.dtype.roundoff * exact)


def strided(problem: ConvProblem) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return problem.output.shape, problem.output.strides


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that a call holds at once, of those that it allocates itself."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    assert profiled.profiler is not None
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = accumulate((e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())), initial=0)
    return max(held)


def check(candidate: Candidate, seed: int, tile: int | None = None) -> None:
    problem = candidate.problem
    given = operands(problem, seed, integers=False)
    difference = (compute(candidate, given).double() - oracle(problem, given)).abs()
    assert (difference <= bound(problem, given, tile)).all()


DTYPES = st.sampled_from([DType.FP32, DType.FP64, DType.FP16, DType.BF16])


def has_products(problem: ConvProblem) -> bool:
    """Whether each element of the result is a sum of at least one product: of ones, none is 0."""
    plain = replace(problem, epilogue=Epilogue())
    ones = {role: torch.ones_like(tensor) for role, tensor in operands(plain, 0).items()}
    return not problem.n or bool((oracle(plain, ones) > 0).all())


EVERY = problems(activations=tuple(Activation)).filter(has_products)


@settings(max_examples=50, deadline=None)
@given(problem=EVERY, dtype=DTYPES, seed=st.integers(0, 99))
def test_a_plane_in_one_piece_is_right(problem: ConvProblem, dtype: DType, seed: int) -> None:
    check(candidate(in_dtype(problem, dtype), FFT), seed)


@settings(max_examples=50, deadline=None)
@given(
    problem=problems(activations=tuple(Activation), most_stride=1, most_room=9).filter(has_products),
    dtype=DTYPES,
    seed=st.integers(0, 99),
    room=st.integers(0, 4),
)
def test_tiles_are_right(problem: ConvProblem, dtype: DType, seed: int, room: int) -> None:
    tile = max(axis.reach for axis in problem.axes) + room
    check(tiled(in_dtype(problem, dtype), tile), seed, tile)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    problem=problems(most_stride=1, most_room=9, least_images=1).filter(has_products),
    seed=st.integers(0, 99),
    room=st.integers(0, 2),
    piece_bytes=st.sampled_from([1, 1000, 10_000, 100_000]),
    block_elements=st.sampled_from([1, 50, 500, 5000]),
)
def test_pieces_and_blocks_make_no_difference(
    problem: ConvProblem, seed: int, room: int, piece_bytes: int, block_elements: int
) -> None:
    tile = max(axis.reach for axis in problem.axes) + room
    with pytest.MonkeyPatch.context() as small:
        small.setattr(fourier, "_PIECE_BYTES", piece_bytes)
        small.setattr(spectra, "BLOCK_ELEMENTS", block_elements)
        cut = [line.tiled(tile) for line in lines(problem)]
        if piece_bytes == 1:  # one row of tiles at a time
            assert len(Fourier(problem, cut).pieces) == problem.n * cut[0].count
        check(tiled(problem, tile), seed, tile)
        check(candidate(problem, FFT), seed)


def test_the_last_piece_may_have_the_largest_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has fewer tiles, so that more planes go into a block, of which each has its overlap."""
    monkeypatch.setattr(fourier, "_PIECE_BYTES", 80_000)
    monkeypatch.setattr(spectra, "BLOCK_ELEMENTS", 1000)
    problem = ConvProblem.parse("ic8ih30oc8kh5ph1")
    cut = Fourier(problem, [line.tiled(8) for line in lines(problem)])
    first, last = (
        cut.spectra.block_planes(cut.image_shape(piece, 8)) * prod(line.source.extent for line in piece.lines)
        for piece in (cut.pieces[0], cut.pieces[-1])
    )
    assert first < last
    check(tiled(problem, 8), 0, 8)


def test_pieces_are_made_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourier, "_PIECE_BYTES", 80_000)
    problem = ConvProblem.parse("mb3ic8ih30oc8kh5ph1")
    pieces = Fourier(problem, [line.tiled(8) for line in lines(problem)]).pieces
    assert len(pieces) > problem.n
    assert [pieces[place - len(pieces)] for place in range(len(pieces))] == [*pieces]
    covered = [(p.images, p.lines[0].skipped, p.lines[0].skipped + p.lines[0].outputs) for p in pieces]
    for image in range(problem.n):
        rows = [(start, end) for images, start, end in covered if images == slice(image, image + 1)]
        assert [0, *(end for _, end in rows)] == [*(start for start, _ in rows), problem.y.shape[2]]
    with pytest.raises(IndexError):
        pieces[len(pieces)]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    "text", ["mb999999999999999999ic8ih9oc8kh3", "mb2ic8ih999999999999999999oc8kh3", "ic8iw999999999999999999oc8kw3"]
)
def test_an_offer_takes_no_longer_for_a_large_problem(text: str, direction: Direction) -> None:
    problem = ConvProblem.parse(text).asking(direction)
    for algorithm in FFT, TILED:
        assert (candidate(problem, algorithm).workspace_bytes or 0) > 0


def test_quick_lengths_are_the_next_ones() -> None:
    def is_quick(length: int) -> bool:
        return 210**11 % length == 0  # 2**11 is the largest power of a factor up to 2400

    quick = [length for length in range(1, 2401) if is_quick(length)]
    expected = [next(length for length in quick if length >= least) for least in range(1, 2401)]
    assert [quick_length(least) for least in range(1, 2401)] == expected


SIZES = [
    "mb2ic24ih40oc16kh5ph2",
    "g2mb3ic8iw300oc6kw31pw9",
    "ic6id9ih12iw10oc5kd3kh3kw3pd1ph1pw1",
    "g64ic64ih20oc64kh7",
]


@pytest.mark.parametrize("text", SIZES)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("algorithm", [FFT, TILED])
def test_the_error_is_no_more_than_a_few_roundoffs(text: str, direction: Direction, algorithm: str) -> None:
    """On normal data the roundoffs of the levels of a transform mostly cancel: less than one a level remains."""
    problem = ConvProblem.parse(text).asking(direction)
    given = operands(problem, 0, integers=False)
    expected = oracle(problem, given)
    error = (compute(candidate(problem, algorithm), given).double() - expected).norm() / expected.norm()
    levels = log2(prod(line.whole().length for line in lines(problem)))
    assert error < levels * DType.FP32.roundoff


def test_half_types_are_rounded_once() -> None:
    """The spectra are fp32: what remains is the rounding of the result."""
    problem = ConvProblem.parse("mb2ic16ih20oc8kh5 dt:fp16 ep:residual+bias")
    given = operands(problem, 0, integers=False)
    expected = oracle(problem, given)
    for algorithm in FFT, TILED:
        result = compute(candidate(problem, algorithm), given)
        assert (result == expected.half()).float().mean() > 0.99


@settings(max_examples=30, deadline=None)
@given(problem=problems(most_stride=1).filter(has_products))
def test_output_and_workspace_may_be_left_to_the_plan(problem: ConvProblem) -> None:
    given = operands(problem, 1)
    for algorithm in FFT, TILED:
        chosen = candidate(problem, algorithm)
        expected = compute(chosen, given)
        plan = Reference().build(chosen, CPU)
        assert torch.equal(run(plan, given, own_workspace=True), expected)
        first, second = (given[role] for role in problem.direction.operands)
        second = plan.prepare(second) if Role.W in given else second
        result = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL))
        assert torch.equal(result, expected)
        assert result.stride() == problem.output.strides


def test_a_packed_weight_is_all_that_a_plan_needs() -> None:
    problem = ConvProblem.parse("mb2ic3ih9oc4kh3")
    given = operands(problem, 0, integers=False)
    plan = Reference().build(candidate(problem, FFT), CPU)
    packed = plan.prepare(given[Role.W])
    expected = plan(given[Role.X], packed)
    given[Role.W].fill_(torch.nan)
    assert torch.equal(plan(given[Role.X], packed), expected)


def test_a_batch_of_none_gives_no_gradient_but_zeros() -> None:
    problem = ConvProblem.of((0, 4, 6, 6), (6, 4, 3, 3), direction=Direction.BACKWARD_WEIGHT)
    for algorithm in FFT, TILED:
        assert torch.equal(compute(candidate(problem, algorithm), operands(problem, 0)), torch.zeros(6, 4, 3, 3))


@pytest.mark.parametrize(
    "text", [*SIZES, "mb40ic32ih30oc32kh3ph1", "mb2ic64ih56oc64kh3ph1", "mb2ic8ih96oc8kh3 tag:nhwc dt:bf16"]
)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("algorithm", [FFT, TILED])
def test_no_more_is_allocated_than_was_said(text: str, direction: Direction, algorithm: str) -> None:
    """PyTorch's transforms take no memory from their caller: it is counted beside the buffers."""
    problem = ConvProblem.parse(text).asking(direction)
    plan = Reference().build(candidate(problem, algorithm), CPU)
    assert isinstance(plan, FinitePlan)
    assert isinstance(plan.spreading, FourierPlan)
    given = operands(problem, 0)
    first, second = (given[role] for role in direction.operands)
    second = plan.prepare(second) if Role.W in given else second
    out, workspace = torch.empty_strided(*strided(problem)), torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    out = out.to(first.dtype)
    extra = given.get(Role.BIAS), given.get(Role.RESIDUAL)
    allocated = peak_bytes(lambda: plan(first, second, *extra, out, workspace))
    assert 0 < allocated <= plan.workspace_bytes - plan.spreading.fourier.buffers.nbytes


def test_the_workspace_does_not_grow_with_the_image_or_the_batch() -> None:
    for direction in Direction:
        bytes_of = [
            [candidate(ConvProblem.parse(f"mb{n}ic16ih{size}oc16kh3ph1").asking(direction), a).workspace_bytes or 0
             for n, size in ((1, 256), (1, 2048), (64, 256))]
            for a in (FFT, TILED)
        ]  # fmt: skip
        (_, *whole), (first, *others) = bytes_of
        assert max(others) <= 2 * first
        assert whole[0] > 4 * others[0]


def test_what_is_said_of_a_candidate() -> None:
    problem = ConvProblem.parse("mb2ic8ih60oc8kh3ph1")
    whole, cut = candidate(problem, FFT), candidate(problem, TILED)
    assert whole.id == "reference/fft"
    assert cut.id.startswith("reference/fft-tiled[tile=")
    for each in whole, cut:
        assert each.arithmetic is Arithmetic.FP32
        assert each.deterministic
        assert each.saves_products
    assert candidate(ConvProblem.parse("ic8ih9oc8kh3 dt:bf16"), FFT).arithmetic is Arithmetic.FP32
    assert candidate(ConvProblem.parse("ic8ih9oc8kh3 dt:fp64"), FFT).arithmetic is Arithmetic.FP64


def test_a_gpu_has_to_link_transforms_of_each_size() -> None:
    problem = ConvProblem.parse("ic8ih9oc8kh3")
    for device, linked in ((CPU, set()), (profiles.profile("h200"), {FFT, TILED})):
        offers = [each for each in Reference().candidates(problem, device, Policy()) if isinstance(each, Candidate)]
        assert {each.id.partition("[")[0] for each in offers if each.links_us} == linked


def test_larger_filters_get_larger_tiles() -> None:
    def tile(taps: int) -> object:
        return dict(candidate(ConvProblem.parse(f"ic16ih500oc16kh{taps}"), TILED).config)["tile"]

    assert [tile(3), tile(11), tile(51)] == sorted({tile(3), tile(11), tile(51)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ic8ih9oc8kh3sh2", "stride (2, 2): tiles need stride 1"),
        ("ic8iw9oc8kw3sw3", "stride (3,): tiles need stride 1"),
        ("ic1ih300oc1kh201", "the filter spans (201, 201) elements, but the largest tile has 128 in each dimension"),
    ],
)
def test_refusals_name_the_value(text: str, reason: str) -> None:
    problem = ConvProblem.parse(text)
    assert offered(problem, TILED) == Refusal(TILED, reason)
    assert isinstance(offered(problem, FFT), Candidate)


@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_sums_of_no_products_are_refused(problem: ConvProblem) -> None:
    """They are 0, and a transform's would be what is left of rounding errors."""
    assert isinstance(offered(problem, FFT), Candidate) == has_products(problem)


@pytest.mark.parametrize("algorithm", [FFT, TILED])
def test_the_refusal_of_sums_of_no_products(algorithm: str) -> None:
    refusal = offered(ConvProblem.parse("ic3ih1iw4oc9kh2kw1ph9pw0dh16dw0"), algorithm)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == (
        "some results read only padding and must be exactly 0: an input of (1, 4), padded by "
        "((9, 9), (0, 0)), with strides of (1, 1)"
    )
