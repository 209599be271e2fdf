"""Products on folded rows of taps without a GPU: what they serve, that they compile, launches, and their results."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS, Case, listed
from backends.triton_interpreted.folded_gemm_cases import ALGORITHM, SERVED, every_tile
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.folded_gemm.offers import FoldedTile, Folding, algorithm_of, algorithms_of, steps
from convwright.backends.triton.folded_gemm.plan import FoldedGemmPlan
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.limits import limits
from convwright.core.plan import Launchable
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BackendError, BadInput

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200, A100 = profile("h200"), profile("a100")
PRESENT = replace(H200, torch_name="cuda:1")
STEM = ConvProblem.parse("mb32ic3ih224oc64kh7ph3sh2 tag:nhwc ep:bias+relu")
DTYPES = [DType.FP32, DType.FP16, DType.BF16]
LAYERS = (
    "mb32ic3ih224oc64kh7ph3sh2 tag:nhwc", "mb1ic3ih224oc64kh7ph3sh2", "mb8ic3ih224oc32kh3ph1sh2 tag:nhwc",
    "mb4ic1ih28oc8kh3", "mb2ic8id8ih28oc100kd3kh3pd1ph1 tag:nhwc", "mb16ic4iw2000oc64kw10sw5 ep:residual+bias+gelu",
)  # fmt: skip
ARITHMETIC = {
    "folded-gemm-3xfp16": Arithmetic.FP16X3,
    "folded-gemm-scaled-fp16": Arithmetic.SCALED_FP16,
}
# Pixels and outputs that fill no tile, and an output whose channels no 16 bytes hold.
TAILS = Case((4, 5, 27, 29), (75, 5, 3, 3), padding=((1, 1), (1, 1)), epilogue="residual+bias+relu", slack=3)


def in_dtype(problem: ConvProblem, dtype: DType) -> ConvProblem:
    return replace(problem, **{role: replace(getattr(problem, role), dtype=dtype) for role in "xwy"})


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


# What is served.


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb32ic9ih56oc64kh3ph1", "needs at most 8 input and at least 8 output channels, got 9 and 64"),
        ("mb32ic3ih56oc7kh3ph1", "needs at most 8 input and at least 8 output channels, got 3 and 7"),
        ("g2mb32ic6ih56oc64kh3ph1", "needs `groups` = 1, got 2"),
        ("mb32ic3ih56oc64kh1", "needs several adjacent taps in a row, got 1 with dilation 1"),
        ("mb32ic3ih56oc64kh3kw1ph1", "needs several adjacent taps in a row, got 1 with dilation 1"),
        ("mb32ic3ih56oc64kh3dh1dw1", "needs several adjacent taps in a row, got 3 with dilation 2"),
        ("mb32ic4iw560oc64kw17", "needs at most 16 taps in a row for 4 channels, got 17"),
        ("mb32ic5iw560oc64kw9", "needs at most 8 taps in a row for 5 channels, got 9"),
        ("mb1ic3iw9000oc8kw3", "needs rows of at most 8,192 pixels, got 9,000"),
        ("mb0ic3ih56oc64kh3ph1", "needs a batch of at least 1, got 0"),
        ("mb400ic3ih1024iw1024oc8kh3ph1", "needs a staged input of at most 2^30 numbers, got 3,368,563,200"),
        ("mb32ic3ih56oc64kh3ph1 dt:fp64", "got fp64"),
        ("mb32ic3ih56oc64kh3ph1 ep:accumulate", "does not fuse accumulate"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    problem = ConvProblem.parse(f"{text} tag:nhwc")
    offers = listed(ALGORITHM, problem, H200)
    assert [offer.id for offer in offers] == [algorithm.id for algorithm in algorithms_of(problem.dtype)]
    for refusal in offers:
        assert isinstance(refusal, Refusal)
        assert words in refusal.reason


@not_interpreted
def test_an_output_without_neighbours_is_refused_and_an_input_served() -> None:
    def apart(spec: TensorSpec) -> TensorSpec:
        return replace(spec, strides=tuple(2 * stride for stride in spec.strides), alignment=8)

    for refusal in listed(ALGORITHM, replace(STEM, y=apart(STEM.y)), H200):
        assert isinstance(refusal, Refusal)
        assert "along the channels or the width of `output`, got strides" in refusal.reason
    assert offered(replace(STEM, x=apart(STEM.x)))


@not_interpreted
def test_few_channels_are_served_and_no_others() -> None:
    for case in (*SERVED.values(), *CASES.values(), *VOLUMES.values(), *WIDE_GROUPS.values()):
        few = case.x[1] <= 8 <= case.w[0] and case.groups == 1
        folds = case.w[-1] > 1 == case.dilation[-1]
        for offer in listed(ALGORITHM, case.problem(DType.FP32), H200):
            assert isinstance(offer, Candidate) == (few and folds), case


def test_other_directions_know_nothing_of_it() -> None:
    for direction in ("backward_data", "backward_weight"):
        assert not listed(ALGORITHM, ConvProblem.parse(f"mb8ic3ih56oc64kh3ph1 dir:{direction}"), H200)


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", LAYERS)
def test_few_candidates_are_listed_always_the_same(text: str, dtype: DType, device: DeviceFacts) -> None:
    problem = in_dtype(ConvProblem.parse(text), dtype)
    found = offered(problem, device)
    assert [each.id for each in found] == [each.id for each in offered(problem, device)]
    assert len({each.id for each in found}) == len(found)
    names = {algorithm.name for algorithm in algorithms_of(dtype)}
    assert names == ({*ARITHMETIC} if dtype is DType.FP32 else {ALGORITHM})
    for name in names:
        assert 2 <= sum(each.algorithm == name for each in found) <= MOST_TILES
    plain = Arithmetic.BF16_ACC32 if dtype is DType.BF16 else Arithmetic.FP16_ACC32
    for each in found:
        tile = FoldedTile.of(each)
        assert tile.config == each.config
        assert each.arithmetic is ARITHMETIC.get(each.algorithm, plain)
        assert each.source is Source.RULE
        assert each.compiles
        assert each.deterministic
        assert not each.saves_products
        folding = Folding.of(problem, algorithm_of(each))
        assert tile.bk == folding.step
        assert each.workspace_bytes == folding.nbytes + folding.packed_bytes(steps(problem), problem.k)


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    ids = [each.id for each in offered(STEM)]
    assert "triton/folded-gemm-3xfp16[bm=128,bn=64,bk=32,warps=4,stages=3]" in ids
    assert "triton/folded-gemm-scaled-fp16[bm=128,bn=64,bk=32,warps=4,stages=3]" in ids


@not_interpreted
def test_its_limits_are_three_products_and_one_at_the_rate_of_fp16() -> None:
    peak = H200.peak(Arithmetic.FP16_ACC32)
    assert peak is not None
    for candidate in (*offered(STEM), *offered(in_dtype(STEM, DType.FP16))):
        products = 3 if candidate.algorithm.endswith("3xfp16") else 1
        assert limits(candidate, H200).arithmetic_us == pytest.approx(products * STEM.flops / peak)


@pytest.mark.parametrize(
    ("text", "pixels", "channels", "step"),
    [
        ("mb32ic3ih224oc64kh7ph3sh2", (32, 1, 229, 230), 4, 32),  # rows are filled up to whole loads
        ("mb2ic1ih9oc8kh3", (2, 1, 9, 10), 4, 16),
        ("mb1ic5ih8iw7oc8kh2kw3sh3pw1", (1, 1, 8, 9), 8, 32),
        ("mb3ic8iw20oc8kw8sw4", (3, 1, 1, 20), 8, 64),
        ("mb1ic2id4ih6iw5oc8kd2kh3kw2pd1ph1pw0", (1, 6, 8, 6), 4, 16),
    ],
)
def test_rows_lie_with_channels_filled_up_to_a_power_of_two(
    text: str, pixels: tuple[int, ...], channels: int, step: int
) -> None:
    problem = ConvProblem.parse(f"{text} tag:nhwc")
    for dtype, each in ((DType.FP32, 2), (DType.FP32, 1), (DType.FP16, 1)):
        algorithm = algorithms_of(dtype)[dtype is DType.FP32 and each == 1]
        folding = Folding.of(in_dtype(problem, dtype), algorithm)
        images, depth, height, width = pixels
        assert (folding.images, folding.depth, folding.height, folding.width) == pixels
        assert (folding.channels, folding.step, folding.each) == (channels, step, each)
        rows = images * depth * height
        assert folding.rows == rows
        exact = 2 * each * rows * width * channels + 4 * rows * (dtype is DType.FP32)
        assert exact <= folding.nbytes < exact + 256
        assert folding.nbytes % 256 == 0


# Compiling.


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(
    ("device", "dtype", "places"),
    [
        (H200, DType.FP32, (0, 10, 25)),
        (A100, DType.FP32, (3, 30)),
        (H200, DType.BF16, (5, 10)),
        (A100, DType.FP16, (8, 11)),
    ],
)
def test_tiles_compile_without_spilling_and_fit_in_shared_memory(
    device: DeviceFacts, dtype: DType, places: tuple[int, ...]
) -> None:
    for candidate in [every_tile(in_dtype(STEM, dtype))[place] for place in places]:
        laid, products = (call.compile(device.architecture) for call in kernel_calls(candidate))
        assert products.metadata.shared <= shared_limit(device), candidate.id
        for compiled in (laid, products):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
            assert not spilled(compiled.asm["sass"]), f"{candidate.id}: {compiled.metadata.name}"
        is_read_at_once = FoldedTile.of(candidate).programs is not None and FoldedTile.of(candidate).stages == 1
        assert ("cp.async" in products.asm["ptx"]) is not is_read_at_once, "steps are loaded ahead"
        if device is H200:
            assert "wgmma.mma_async" in products.asm["ptx"], candidate.id


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_what_is_listed_fits_in_shared_memory_where_steps_are_longest(device: DeviceFacts) -> None:
    found = offered(ConvProblem.parse("mb16ic4ih50iw200oc64kh3kw10 tag:nhwc"), device)
    largest = max(
        found, key=lambda each: each.algorithm.endswith("3xfp16") * (FoldedTile.of(each).bm + FoldedTile.of(each).bn)
    )
    _, products = kernel_calls(largest)
    assert products.compile(device.architecture).metadata.shared <= shared_limit(device), largest.id


def spilled(instructions: str) -> list[str]:
    """What stores registers into memory, which only the driver's own instructions show."""
    return re.findall(r"\bSTL\b", instructions)


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(("x", "y"), PLANES)
def test_what_is_listed_for_operands_in_planes_compiles(x: Layout, y: Layout) -> None:
    candidate = every_tile(TAILS.problem(DType.FP32, x, y))[4 * PLANES.index((x, y)) + 2]
    for call in kernel_calls(candidate):
        metadata = call.compile("sm_90").metadata
        assert metadata.shared <= shared_limit(H200), candidate.id
        assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


# Launches.


def built(dtype: DType) -> FoldedGemmPlan:
    plan = BACKEND.build(offered(in_dtype(STEM, dtype))[-1], PRESENT)
    assert isinstance(plan, FoldedGemmPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
def test_a_launch_lays_operands_and_multiplies(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(dtype)
    x, w, bias, y = (torch.empty(8) for _ in range(4))
    assert plan.prepare(w) is w
    behind = Folding.of(plan.candidate.problem, algorithm_of(plan.candidate)).nbytes
    staged = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    assert plan(x, w, bias, out=y, workspace=staged) is y
    plan.launch(1024, 2048, 512, 0, 4096, 8192, 55)
    at = staged.data_ptr(), staged.data_ptr() + behind
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), at[0], w.data_ptr(), at[1], 0, 0], [*at, bias.data_ptr(), 0, y.data_ptr(), 0, 0],
        [1024, 8192, 2048, 8192 + behind, 0, 0], [8192, 8192 + behind, 512, 0, 4096, 0, 0],
    ]  # fmt: skip
    first, second = kernel_calls(plan.candidate)
    assert [launched.config[0] for launched in driver.launches] == [first.blocks, second.blocks] * 2
    assert [launched.config[7] for launched in driver.launches] == [1001, 1001, 55, 55]
    with pytest.raises(BadInput, match="neither bias nor residual"):
        plan(x, w, None, None, y)
    with pytest.raises(BadInput, match="needs a workspace of"):
        plan.launch(1024, 2048, 512, 0, 4096, 0, 55)


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16])
def test_a_weight_lies_packed_behind_the_input_with_its_powers_of_two(dtype: DType) -> None:
    candidate = every_tile(in_dtype(STEM, dtype))[0]
    assert steps(candidate.problem) == 7
    folding = Folding.of(candidate.problem, algorithm_of(candidate))
    packed = folding.packed_bytes(steps(candidate.problem), STEM.k)
    assert packed == 64 * (2 * folding.each * 7 * 32 + 4)
    assert candidate.workspace_bytes == folding.nbytes + packed
    laid, _ = kernel_calls(candidate)
    assert laid.blocks == folding.rows + 64


@not_interpreted
@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
def test_a_plan_is_read_as_it_was_written(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(dtype)
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, FoldedGemmPlan)
    assert again.text == text
    assert again.workspace_bytes == plan.workspace_bytes == plan.candidate.workspace_bytes
    assert len(driver.loaded) == 2, "each kernel is loaded once"
    for wrong in ("", "{}", "[]", '["{}"]'):
        with pytest.raises(BackendError, match=r"stored kernels? cannot be read"):
            BACKEND.read(plan.candidate, PRESENT, wrong)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_folded_gemm.py")
