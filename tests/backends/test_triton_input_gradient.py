"""An input's gradient in Triton without a GPU: what it serves, that it compiles, how it is launched, its results."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import gcd
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given as drawn

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import PLANES, listed
from backends.triton_interpreted.input_gradient_cases import STRIDED, all_tiles, gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import MOST_TILES, algorithms_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.offers import KERNEL, Phase, kernel_calls, phases, reads_beyond
from convwright.backends.triton.input_gradient.plan import InputGradientPlan
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.launch import Launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.plan import Launchable
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from problem_space import problems

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200 = profile("h200")
A100 = replace(H200, name="NVIDIA A100", architecture="sm_80", sm_count=108)
PRESENT = replace(H200, torch_name="cuda:1")
LAYER = ConvProblem.parse("mb32ic256ih56oc256kh3ph1sh2 dir:backward_data tag:nhwc")
DTYPES = [DType.FP16, DType.BF16, DType.FP32]
NEVER_LAUNCHED = cast(Launch, SimpleNamespace(stream=None))


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(KERNEL, problem, device)
    return [offer for offer in offers if isinstance(offer, Candidate)]


def in_dtype(problem: ConvProblem, dtype: DType) -> ConvProblem:
    return replace(problem, **{role: replace(getattr(problem, role), dtype=dtype) for role in "xwy"})


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic8ih9oc8kh3", "needs a stride above 1; `as-forward` supports stride 1"),
        ("ic8ih9oc8kh3sh2dh1", "needs dilation and stride without a common divisor, got 2 and 2"),
        ("ic8ih99oc8kh3sh13sw5", "a product of the strides of at most 64, got 65"),
        ("g4ic32ih9oc16kh3sh2", "groups with at least 8 input and 8 output channels, got 8 and 4"),
        ("ic8ih9oc8kh3sh2 dt:fp64", "computes only fp16, bf16, fp32, got fp64"),
        ("mb0ic8ih9oc8kh3sh2", "needs a batch of at least 1, got 0"),
        ("mb1ic1ih40000oc1kh1sh2", "got 1,600,000,000 in `input`"),
        ("mb2000ic1ih1000oc1kh1sh8", "at most 2^30 input pixels, got 2,000,000,000"),
        ("ic8ih9oc8kh3sh2 ep:relu", "does not fuse relu into backward_data"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    dtype = "" if "dt:" in text else "dt:fp16"
    (refusal,) = listed(KERNEL, ConvProblem.parse(f"{text} {dtype} dir:backward_data tag:nhwc"), H200)
    assert isinstance(refusal, Refusal)
    assert refusal.id == "triton/input-gradient"
    assert words in refusal.reason


@not_interpreted
@pytest.mark.parametrize(("role", "name"), [("x", "input"), ("y", "gradient")])
def test_an_operand_without_neighbours_is_refused(role: str, name: str) -> None:
    problem = ConvProblem.parse("mb2ic8ih9oc8kh3ph1sh2 dt:fp16 dir:backward_data")
    spec: TensorSpec = getattr(problem, role)
    apart = replace(spec, strides=tuple(2 * stride for stride in spec.strides), alignment=2)
    (refusal,) = listed(KERNEL, replace(problem, **{role: apart}), H200)
    assert isinstance(refusal, Refusal)
    assert f"along the channels or the width of `{name}`, got strides" in refusal.reason


@not_interpreted
def test_each_fp32_algorithm_refuses_by_its_own_name() -> None:
    offers = listed(KERNEL, ConvProblem.parse("ic8ih9oc8kh3 dir:backward_data"), H200)
    assert [offer.id for offer in offers] == [algorithm.id for algorithm in algorithms_of(KERNEL, DType.FP32)]


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", DTYPES)
def test_few_candidates_are_listed_always_the_same(dtype: DType, device: DeviceFacts) -> None:
    for problem in (in_dtype(LAYER, dtype), *(gradient(case, dtype) for case in STRIDED.values())):
        found = offered(problem, device)
        assert [each.id for each in found] == [each.id for each in offered(problem, device)]
        assert len({each.id for each in found}) == len(found)
        for arithmetic in {algorithm.arithmetic for algorithm in algorithms_of(KERNEL, dtype)}:
            assert 1 <= sum(each.arithmetic is arithmetic for each in found) <= MOST_TILES
        assert all(each.source is Source.RULE and each.workspace_bytes == 0 and each.compiles for each in found)
        assert all(Tile.of(each).config == each.config for each in found)


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    ids = [each.id for each in offered(LAYER)]
    assert "triton/input-gradient-3xtf32[bm=128,bn=128,bk=32,warps=8,stages=3]" in ids


def test_phases_of_a_layer() -> None:
    pixels = 32 * 28 * 28
    first_taps = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert phases(LAYER) == tuple(Phase(tap, pixels, taps) for tap, taps in zip(first_taps, (4, 2, 2, 1), strict=True))
    assert reads_beyond(LAYER)
    pointwise = ConvProblem.parse("mb1ic8ih8oc8kh1sh2 dir:backward_data")
    assert [phase.taps for phase in phases(pointwise)] == [1, 0, 0, 0]
    assert not reads_beyond(pointwise)
    assert reads_beyond(ConvProblem.parse("mb1ic8ih9oc8kh2sh2 dir:backward_data"))


@drawn(problems(most_groups=1, least_images=1))
def test_phases_are_the_pixels_and_the_products(problem: ConvProblem) -> None:
    if any(gcd(axis.stride, axis.dilation) > 1 for axis in problem.axes):
        return
    found = phases(problem)
    assert sum(phase.pixels for phase in found) == problem.x.numel // problem.c
    assert all(before.taps >= behind.taps for before, behind in pairwise(found))
    products = sum(phase.pixels * phase.taps for phase in found) * problem.c * problem.k
    # What is read from beyond the output is a product too many, and nothing else is.
    assert (products > met(problem)) is (reads_beyond(problem) and products > 0)
    assert products >= met(problem)


def met(problem: ConvProblem) -> int:
    pairs = problem.n * problem.c * problem.k
    for axis in problem.axes:
        pairs *= axis.products()
    return pairs


@not_interpreted
def test_programs_of_heavy_phases_come_first() -> None:
    problem = gradient(STRIDED["phases in another order than their taps"], DType.FP16)
    for candidate in offered(problem):
        (call,) = kernel_calls(candidate)
        told = call.constants["PHASES"]
        assert isinstance(told, tuple)
        firsts = [first for first, *_ in told]
        assert firsts[0] == 0
        assert sorted(set(firsts)) == firsts
        assert firsts[-1] < call.blocks
        taps = {phase.tap: phase.taps for phase in phases(problem)}
        ordered = [taps[t, r, s] for _, t, r, s in told]
        assert ordered == sorted(ordered, reverse=True)
        assert [tap for _, *tap in told] != sorted(tap for _, *tap in told)


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_what_is_listed_compiles_and_fits_in_shared_memory(dtype: DType, device: DeviceFacts) -> None:
    for problem in in_dtype(LAYER, dtype), gradient(STRIDED["stem"], dtype):
        for candidate in offered(problem, device)[:: 8 if device is H200 else 9]:
            for call in kernel_calls(candidate):
                metadata = call.compile(device.architecture).metadata
                assert metadata.shared <= shared_limit(device), candidate.id
                assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(("dy", "dx"), PLANES)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_what_is_listed_for_operands_in_planes_compiles(dtype: DType, dy: Layout, dx: Layout) -> None:
    for candidate in offered(gradient(STRIDED["3x3"], dtype, dy, dx))[::8]:
        assert kernel_calls(candidate)[0].compile("sm_90").metadata.shared <= shared_limit(H200), candidate.id


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_and_warp_groups_multiply() -> None:
    for dtype in (DType.FP16, DType.FP32):
        problem = in_dtype(LAYER, dtype)
        for algorithm in algorithms_of(KERNEL, dtype):
            candidate = next(each for each in all_tiles(problem) if each.algorithm == algorithm.name)
            compiled = kernel_calls(candidate)[0].compile("sm_90")
            bound = Tile.of(candidate).shared_bytes(dtype.nbytes, split=algorithm.split)
            assert compiled.metadata.shared <= bound, candidate.id
            assert "wgmma.mma_async" in compiled.asm["ptx"], candidate.id
            assert "cp.async.cg.shared.global" in compiled.asm["ptx"], "16 bytes are loaded at once"


def built(candidate: Candidate) -> InputGradientPlan:
    plan = BACKEND.build(candidate, PRESENT)
    assert isinstance(plan, InputGradientPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
def test_a_launch_is_one_kernel_of_three_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[0])
    dy, w, dx = (torch.empty(8) for _ in range(3))
    assert plan(dy, w, out=dx) is dx
    plan.launch(1024, 2048, 0, 0, 4096, 0, 55)
    assert [launched.arguments for launched in driver.launches] == [
        [dy.data_ptr(), w.data_ptr(), dx.data_ptr(), 0, 0], [1024, 2048, 4096, 0, 0],
    ]  # fmt: skip
    (call,) = kernel_calls(plan.candidate)
    assert [launched.config[0] for launched in driver.launches] == [call.blocks] * 2
    with pytest.raises(BadInput, match="got bias"):
        plan(dy, w, dx)


@not_interpreted
def test_a_plan_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[0])
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, InputGradientPlan)
    assert again.text == text
    assert len(driver.loaded) == 1, "a kernel is loaded once"


@not_interpreted
def test_a_weight_is_laid_along_the_sum() -> None:
    problem = ConvProblem.parse("g2ic16ih9oc22kh3kw2sh2 dir:backward_data")
    weight = torch.randn(problem.w.shape)
    candidate = next(each for each in all_tiles(problem) if each.algorithm == "input-gradient-3xtf32")
    laid = InputGradientPlan(candidate, H200, [NEVER_LAUNCHED]).prepare(weight)
    assert laid.is_contiguous()
    # The groups' output channels one behind the other.
    assert torch.equal(laid.movedim(-1, 1).flatten(0, 1), weight)


@not_interpreted
def test_a_channels_last_weight_of_whole_tiles_is_taken_as_it_lies() -> None:
    problem = in_dtype(LAYER, DType.BF16)
    weight = torch.randn(problem.w.shape).bfloat16()
    prepared = InputGradientPlan(offered(problem)[0], H200, [NEVER_LAUNCHED]).prepare
    last = weight.to(memory_format=torch.channels_last)
    assert prepared(last) is last
    assert torch.equal(prepared(weight), weight)
    assert prepared(weight).is_contiguous(memory_format=torch.channels_last)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_input_gradient.py")
