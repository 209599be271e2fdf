"""Our Winograd convolution without a GPU: what it serves, that it compiles, how it is launched, and its results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import PLANES, Case, listed
from backends.triton_interpreted.winograd_cases import SAME, every_tile
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.winograd.offers import ALGORITHMS, KERNEL
from convwright.backends.triton.winograd.plan import WinogradPlan
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.limits import limits
from convwright.core.plan import Launchable
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from convwright.rewrites import rewrite

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200 = profile("h200")
A100 = replace(H200, name="NVIDIA A100", architecture="sm_80", sm_count=108)
PRESENT = replace(H200, torch_name="cuda:1")
LAYER = ConvProblem.parse("mb64ic256ih14oc256kh3ph1 tag:nhwc ep:bias+relu")
# Channels and patches that fill no tile, and channels that no 16 bytes hold.
TAILS = Case((64, 67, 27, 27), (75, 67, 3, 3), padding=SAME, epilogue="residual+bias+relu", slack=5)


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed("winograd", problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb64ic256ih14oc256kh3ph1 dt:fp16", "computes only fp32, got fp16"),
        ("mb64ic256id8ih14oc256kd3kh3pd1ph1", "needs 1 or 2 spatial dimensions, got 3"),
        ("mb64ic256iw140oc256kw3pw1", "needs 2 spatial dimensions, got 1"),
        ("g2mb64ic256ih14oc256kh3ph1", "needs `groups` = 1, got 2"),
        ("mb64ic256ih14oc256kh3kw1ph1", "needs 3x3 taps, got 3x1"),
        ("mb64ic256ih14oc256kh3ph1sh2", "needs stride 1, got (2, 2)"),
        ("mb64ic256ih14oc256kh3ph2dh1", "needs dilation 1, got (2, 2)"),
        ("mb64ic15ih14oc256kh3ph1", "needs at least 16 input and output channels, got 15 and 256"),
        ("mb64ic256ih14oc3kh3ph1", "needs at least 16 input and output channels, got 256 and 3"),
        ("mb0ic256ih14oc256kh3ph1", "needs a batch of at least 1, got 0"),
        ("mb256ic256ih56oc256kh3ph1", "needs a transformed input of at most 2^30 bytes, got 3,288,334,336"),
        ("mb1ic8192ih14oc8192kh3ph1", "needs a transformed weight of at most 2^30 numbers, got 2,751,463,424"),
        ("mb1ic256ih14oc256kh3ph1", "times as long as an implicit GEMM, in 8 tiles"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    offers = listed("winograd", ConvProblem.parse(f"{text} tag:nhwc"), H200)
    assert [offer.id for offer in offers] == [algorithm.id for algorithm in ALGORITHMS]
    for refusal in offers:
        assert isinstance(refusal, Refusal)
        assert words in refusal.reason


@not_interpreted
@pytest.mark.parametrize(("role", "name"), [("x", "input"), ("y", "output")])
def test_an_operand_without_neighbours_is_refused(role: str, name: str) -> None:
    spec: TensorSpec = getattr(LAYER, role)
    apart = replace(spec, strides=tuple(2 * stride for stride in spec.strides), alignment=8)
    for refusal in listed("winograd", replace(LAYER, **{role: apart}), H200):
        assert isinstance(refusal, Refusal)
        assert f"along the channels or the width of `{name}`, got strides" in refusal.reason


def test_other_directions_know_nothing_of_it() -> None:
    for direction in ("backward_data", "backward_weight"):
        assert not listed("winograd", ConvProblem.parse(f"mb64ic256ih14oc256kh3ph1 dir:{direction}"), H200)


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize(
    "text",
    [
        "mb64ic256ih14oc256kh3ph1", "mb32ic64ih56oc64kh3ph1 tag:nhwc", "mb256ic512ih7oc512kh3ph1",
        "mb1ic64ih224oc64kh3",
    ],
)  # fmt: skip
def test_few_candidates_are_listed_always_the_same(text: str, device: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    found = offered(problem, device)
    assert [each.id for each in found] == [each.id for each in offered(problem, device)]
    assert len({each.id for each in found}) == len(found) <= 4
    assert {each.algorithm for each in found} == {algorithm.name for algorithm in ALGORITHMS}
    rows, columns = (-(-size // 2) for size in problem.y.shape[2:])
    for each in found:
        assert each.source is Source.RULE
        assert each.compiles
        assert each.deterministic
        assert each.arithmetic is Arithmetic.TF32X3
        assert each.workspace_bytes == 16 * problem.n * rows * columns * problem.c * 4
        assert Tile.of(each).config == each.config


@not_interpreted
def test_algorithms_take_turns_each_with_its_best_first() -> None:
    offers = list(BACKEND.candidates(LAYER, H200, Policy()))
    found = [each for each in offers if isinstance(each, Candidate)]
    assert offers[: len(found)] == found, "what is refused comes last"
    algorithms = list(dict.fromkeys(each.algorithm for each in found))
    assert [each.algorithm for each in found[: len(algorithms)]] == algorithms
    own = [each for each in listed("winograd", LAYER, H200) if isinstance(each, Candidate)]
    for algorithm in {each.algorithm for each in own}:
        assert [each for each in found if each.algorithm == algorithm] == [
            each for each in own if each.algorithm == algorithm
        ]
    assert own[0].id == "triton/winograd-3xtf32[bm=128,bn=64,bk=32,warps=8,stages=3]"


@not_interpreted
def test_its_limit_is_that_of_its_own_products() -> None:
    problem = ConvProblem.parse("mb64ic256ih30oc256kh3")
    implicit = next(each for each in listed("implicit-gemm-3xtf32", problem, H200) if isinstance(each, Candidate))
    by_products = limits(implicit, H200).arithmetic_us
    assert by_products is not None
    for candidate in offered(problem):
        assert candidate.saves_products
        assert limits(candidate, H200).arithmetic_us == pytest.approx(by_products / 2.25)


@not_interpreted
def test_a_gradient_of_an_input_finds_it_behind_a_rewrite() -> None:
    forward = rewrite("as-forward").inner(ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dir:backward_data"), ())
    assert offered(forward)


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_tiles_compile_and_fit_in_shared_memory(device: DeviceFacts) -> None:
    for candidate in every_tile(LAYER)[:: 2 if device is H200 else 6]:
        tile, algorithm = Tile.of(candidate), algorithm_of(candidate, KERNEL)
        transform, products, _ = (call.compile(device.architecture) for call in kernel_calls(candidate))
        bound = tile.shared_bytes(4, split=algorithm.split)
        assert products.metadata.shared <= bound <= shared_limit(device), candidate.id
        for compiled in (transform, products):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
        if device is H200:
            assert ("wgmma.mma_async" in products.asm["ptx"]) == (tile.bm >= 64), candidate.id
            assert "cp.async.cg.shared.global" in products.asm["ptx"], "16 bytes are loaded at once"
            assert "st.global.v4.b32" in transform.asm["ptx"], "16 bytes are written at once"


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize(("x", "y"), PLANES[:2])
def test_what_is_listed_for_operands_in_planes_compiles(x: Layout, y: Layout) -> None:
    candidate = every_tile(TAILS.problem(DType.FP32, x, y))[PLANES.index((x, y))]
    transform, products, _ = (call.compile("sm_90") for call in kernel_calls(candidate))
    assert products.metadata.shared <= shared_limit(H200), candidate.id
    assert "st.global.v4.b32" in transform.asm["ptx"], "channels of a point are padded, and lie side by side"
    assert "cp.async.cg.shared.global" in products.asm["ptx"]


def built(candidate: Candidate) -> WinogradPlan:
    plan = BACKEND.build(candidate, PRESENT)
    assert isinstance(plan, WinogradPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
def test_a_launch_is_a_transform_and_products(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[-1])
    x, w, bias, y, points = (torch.empty(8) for _ in range(5))
    assert plan(x, w, bias, out=y, workspace=points) is y
    plan.launch(1024, 2048, 512, 0, 4096, 8192, 55)
    at = [tensor.data_ptr() for tensor in (points, w, x, bias)]
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), points.data_ptr(), 0, 0], [*at, 0, y.data_ptr(), 0, 0],
        [1024, 8192, 0, 0], [8192, 2048, 1024, 512, 0, 4096, 0, 0],
    ]  # fmt: skip
    assert [launched.config[0] for launched in driver.launches] == [
        call.blocks for call in kernel_calls(plan.candidate)[:2]
    ] * 2
    with pytest.raises(BadInput, match="neither bias nor residual"):
        plan(x, w, None, None, y)
    with pytest.raises(BadInput, match="needs a workspace of"):
        plan.launch(1024, 2048, 512, 0, 4096, 0, 55)


@not_interpreted
def test_a_plan_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[-1])
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, WinogradPlan)
    assert again.text == text
    assert len(driver.loaded) == 3, "each kernel is loaded once"


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_winograd.py")
