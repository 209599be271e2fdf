"""Products on a staged input without a GPU: what they serve, that they compile, launches, and their results."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import CASES, GROUPED, PLANES, VOLUMES, WIDE_GROUPS, Case, listed
from backends.triton_interpreted.staged_gemm_cases import ALGORITHM, SAME, SERVED, every_tile, in_parts
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import sums_bytes, tiles_of
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.staged_gemm.offers import SPLIT, Staging, shared_bytes
from convwright.backends.triton.staged_gemm.plan import StagedGemmPlan
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.limits import limits
from convwright.core.plan import Launchable
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BackendError, BadInput
from convwright.rewrites import rewrite

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200, A100 = profile("h200"), profile("a100")
PRESENT = replace(H200, torch_name="cuda:1")
LAYER = ConvProblem.parse("mb64ic256ih14oc256kh3ph1 tag:nhwc ep:bias+relu")
# So few tiles that multiprocessors would be idle.
SMALL = ConvProblem.parse("mb1ic256ih14oc256kh3ph1 tag:nhwc ep:residual+bias+relu")
LAYERS = (
    "mb64ic256ih14oc256kh3ph1 tag:nhwc", "mb1ic256ih14oc256kh3ph1", "mb32ic64ih56oc64kh3ph1",
    "mb32ic1024ih1oc1001kh1", "mb8ic16ih56oc8kh3", "g2mb8ic128id8ih28oc128kd3kh3pd1ph1 tag:nhwc",
    "g4mb16ic64iw2000oc64kw5sw2pw2",
)  # fmt: skip
# Channels and pixels that fill no tile, and channels that no 16 bytes hold.
TAILS = Case((4, 67, 27, 27), (75, 67, 3, 3), padding=SAME, epilogue="residual+bias+relu", slack=5)


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, device)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers, offers
    return found


def parted(problem: ConvProblem) -> Candidate:
    """The best of those in parts."""
    return next(each for each in offered(problem) if Tile.of(each).in_parts)


# What is served.


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mb64ic256ih14oc256kh3ph1 dt:fp16", "computes only fp32, got fp16"),
        ("mb64ic256ih14oc256kh3ph1 dt:fp64", "computes only fp32, got fp64"),
        ("mb0ic256ih14oc256kh3ph1", "needs a batch of at least 1, got 0"),
        ("mb64ic15ih14oc256kh3ph1", "needs at least 16 input and 8 output channels, got 15 and 256"),
        ("mb64ic256ih14oc7kh3ph1", "needs at least 16 input and 8 output channels, got 256 and 7"),
        ("g4mb64ic60ih14oc64kh3ph1", "needs groups with at least 16 input and 8 output channels, got 15 and 16"),
        ("g4mb64ic64ih14oc28kh3ph1", "needs groups with at least 16 input and 8 output channels, got 16 and 7"),
        ("mb256ic256ih128oc256kh3ph1", "needs a staged input of at most 2^30 numbers, got 2,215,116,800"),
        ("mb1ic16384ih14oc8192kh3ph1", "needs at most 2^30 weights, got 1,207,959,552"),
        ("mb1ic4096ih14oc8192kh3ph1", "needs a packed weight of at most 2^30 bytes, got 1,207,992,320"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    problem = ConvProblem.parse(f"{text} tag:nhwc")
    (refusal,) = listed(ALGORITHM, problem, H200)
    assert isinstance(refusal, Refusal)
    assert refusal.id == f"triton/{ALGORITHM}"
    assert words in refusal.reason


@not_interpreted
@pytest.mark.parametrize(("role", "name"), [("x", "input"), ("y", "output")])
def test_an_operand_without_neighbours_is_refused(role: str, name: str) -> None:
    spec: TensorSpec = getattr(LAYER, role)
    apart = replace(spec, strides=tuple(2 * stride for stride in spec.strides), alignment=8)
    (refusal,) = listed(ALGORITHM, replace(LAYER, **{role: apart}), H200)
    assert isinstance(refusal, Refusal)
    assert f"along the channels or the width of `{name}`, got strides" in refusal.reason


@not_interpreted
def test_fewer_channels_are_refused_and_all_else_is_served() -> None:
    for case in (*SERVED.values(), *CASES.values(), *VOLUMES.values(), *GROUPED.values(), *WIDE_GROUPS.values()):
        enough = case.w[1] >= 16 and case.w[0] // case.groups >= 8
        offers = listed(ALGORITHM, case.problem(DType.FP32), H200)
        assert all(isinstance(offer, Candidate) == enough for offer in offers), case


def test_other_directions_know_nothing_of_it() -> None:
    for direction in ("backward_data", "backward_weight"):
        assert not listed(ALGORITHM, ConvProblem.parse(f"mb64ic256ih14oc256kh3ph1 dir:{direction}"), H200)


@not_interpreted
def test_a_gradient_of_an_input_finds_it_behind_a_rewrite() -> None:
    for text in ("mb32ic64ih56oc64kh3ph1", "g2mb32ic64ih56oc64kh3ph1 tag:nhwc"):
        assert offered(rewrite("as-forward").inner(ConvProblem.parse(f"{text} dir:backward_data"), ()))


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("text", LAYERS)
def test_few_candidates_are_listed_always_the_same(text: str, device: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    found = offered(problem, device)
    assert [each.id for each in found] == [each.id for each in offered(problem, device)]
    assert len({each.id for each in found}) == len(found) <= MOST_TILES
    for each in found:
        tile = Tile.of(each)
        assert tile.config == each.config
        assert shared_bytes(SPLIT, tile) <= shared_limit(device)
        assert each.algorithm == ALGORITHM
        assert each.arithmetic is Arithmetic.FP16X3
        assert each.source is Source.RULE
        assert each.compiles
        assert each.deterministic
        assert not each.saves_products
        assert each.workspace_bytes == Staging.of(problem, SPLIT, tile).nbytes + sums_bytes(tile, problem)


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    assert f"triton/{ALGORITHM}[bm=128,bn=128,bk=64,warps=8,stages=3]" in [each.id for each in offered(LAYER)]
    assert re.fullmatch(r".*\[bm=\d+,bn=\d+,bk=\d+,warps=\d+,stages=\d+,parts=\d+\]", parted(SMALL).id)


@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_parts_fill_the_gpu_and_each_has_steps(device: DeviceFacts) -> None:
    found = [each for each in offered(SMALL, device) if Tile.of(each).in_parts]
    assert 1 <= len(found) <= MOST_TILES // 2
    for candidate in found:
        tile = Tile.of(candidate)
        parts, steps = tile.parts or 0, 9 * SMALL.c // tile.bk
        each = -(-steps // parts)
        assert each >= 4, candidate.id
        assert (parts - 1) * each < steps, candidate.id
        assert tiles_of(tile, SMALL) < (device.sm_count or 0), "whole they would leave some of it idle"
    many = ConvProblem.parse("mb256ic256ih28oc256kh1 tag:nhwc")  # of hundreds of rounds the last one hardly counts
    assert not any(Tile.of(each).in_parts for each in offered(many, device))


@not_interpreted
def test_parts_fill_the_last_round_too() -> None:
    """Of a layer's 196 blocks a first round has 132: whole, half of the second one would be idle."""
    best = Tile.of(offered(LAYER, H200)[0])
    sms, whole = H200.sm_count or 0, tiles_of(best, LAYER)
    assert (best.bm, best.bn, whole) == (128, 128, 196)
    assert whole * (best.parts or 1) / (-(-whole * (best.parts or 1) // sms) * sms) > 0.95


@not_interpreted
def test_its_limit_is_three_products_at_the_rate_of_fp16() -> None:
    peak = H200.peak(Arithmetic.FP16_ACC32)
    assert peak is not None
    for candidate in offered(LAYER):
        assert limits(candidate, H200).arithmetic_us == pytest.approx(3 * LAYER.flops / peak)


@pytest.mark.parametrize(
    ("text", "pixels", "channels"),
    [
        ("mb64ic256ih14oc256kh3ph1", (64, 1, 16, 16), (1, 256)),
        ("mb2ic70ih14iw9oc8kh1sh3sw2", (2, 1, 13, 9), (1, 128)),  # what no tap reads is left out
        ("g2mb1ic96ih7oc16kh3dh1ph2sh2", (1, 1, 11, 11), (2, 64)),
        ("mb3ic64iw20oc8kw4sw4", (3, 1, 1, 20), (1, 64)),
        ("mb2ic70ih14iw9oc8kh1sh3sw2 tag:nchw", (2, 1, 13, 10), (1, 128)),  # of planes an even number of columns
        ("mb1ic16id4ih6iw5oc8kd2kh3kw1pd1ph1pw0", (1, 6, 8, 5), (1, 64)),
    ],
)
def test_a_staged_input_is_what_taps_read_in_blocks_of_channels(
    text: str, pixels: tuple[int, ...], channels: tuple[int, int]
) -> None:
    problem = ConvProblem.parse(text if "tag:" in text else f"{text} tag:nhwc")
    staging = Staging.of(problem, SPLIT, Tile(64, 64, 64, 4, 2))
    groups, pitch = channels
    assert (staging.images, staging.depth, staging.height, staging.width) == pixels
    assert (staging.groups, staging.pitch, staging.blocks) == (groups, pitch, groups * pitch // 64)
    assert staging.numbers == 2 * prod(pixels) * groups * pitch
    exact = 2 * staging.numbers + 4 * prod(pixels) * staging.blocks
    assert exact <= staging.nbytes < exact + 256
    assert staging.nbytes % 256 == 0, "sums of parts follow, which are written by 16 bytes"


# Compiling.


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
def test_tiles_compile_without_spilling_and_fit_in_shared_memory(device: DeviceFacts) -> None:
    fitting = [each for each in every_tile(LAYER) if shared_bytes(SPLIT, Tile.of(each)) <= shared_limit(device)]
    for candidate in fitting[:: 2 if device is H200 else 4]:
        tile = Tile.of(candidate)
        staged, products, packed = (call.compile(device.architecture) for call in kernel_calls(candidate))
        assert products.metadata.shared <= shared_bytes(SPLIT, tile), candidate.id
        for compiled in (staged, products, packed):
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)
        assert "cp.async.cg.shared.global" in products.asm["ptx"], "16 bytes are loaded at once"
        assert "st.global.v4.b32" in staged.asm["ptx"], "16 bytes are written at once"
        if device is H200:
            assert "wgmma.mma_async" in products.asm["ptx"], candidate.id
        if tile.bm * tile.bn >= 64 * 32 * tile.warps:
            assert not spilled(products.asm["sass"]), candidate.id


@not_interpreted
def test_lanes_write_along_rows_of_any_width() -> None:
    """Also of an odd one, of which the compiler does not see by itself that its pixels lie side by side in planes."""
    for text in ("mb8ic512ih7oc2048kh1", "mb8ic512ih14oc2048kh1"):
        products = kernel_calls(every_tile(ConvProblem.parse(text))[0])[1].compile("sm_90").asm["ttgir"]
        (layout,) = {*re.findall(r"tt\.store .*, (#blocked\d*)>", products)}
        assert re.search(rf"{layout} = .* threadsPerWarp = \[1, 32\]", products), text


def spilled(instructions: str) -> list[str]:
    """What stores registers into memory, which only the driver's own instructions show."""
    return re.findall(r"\bSTL\b", instructions)


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize(("x", "y"), PLANES)
def test_what_is_listed_for_operands_in_planes_compiles(x: Layout, y: Layout) -> None:
    candidate = every_tile(TAILS.problem(DType.FP32, x, y))[3 * PLANES.index((x, y))]
    staged, products, _ = (call.compile("sm_90") for call in kernel_calls(candidate))
    assert products.metadata.shared <= shared_limit(H200), candidate.id
    assert "st.global.v4.b32" in staged.asm["ptx"], "channels of a pixel are padded, and lie side by side"
    assert "cp.async.cg.shared.global" in products.asm["ptx"]


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize("text", LAYERS[3:])
def test_what_is_listed_for_parts_groups_and_volumes_compiles(text: str) -> None:
    for candidate in offered(ConvProblem.parse(text))[::7]:
        for compiled in (call.compile("sm_90") for call in kernel_calls(candidate)):
            assert compiled.metadata.shared <= shared_limit(H200), candidate.id
            assert (compiled.metadata.global_scratch_size, compiled.metadata.profile_scratch_size) == (0, 0)


def test_products_of_parts_know_nothing_of_the_epilogue() -> None:
    """So that layers which differ in it alone share a compiled kernel."""
    planes = replace(SMALL, y=SMALL.y.dense(Layout.NCHW))
    plain = ConvProblem.parse("mb1ic256ih14oc256kh3ph1 tag:nhwc")
    _, products, total, _ = kernel_calls(in_parts(every_tile(planes)[4], 3))
    _, others, *_ = kernel_calls(in_parts(every_tile(plain)[4], 3))
    assert products.constants == others.constants
    assert products.pointers["y"] == ("fp32", 16)
    assert total.constants["Y_PLANES"]
    assert (total.constants["BIAS"], total.constants["RESIDUAL"], total.constants["ACTIVATION"]) == (True, True, "relu")


# Launches.


def built(candidate: Candidate) -> StagedGemmPlan:
    plan = BACKEND.build(candidate, PRESENT)
    assert isinstance(plan, StagedGemmPlan)
    assert isinstance(plan, Launchable)
    return plan


@not_interpreted
def test_a_launch_stages_and_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[-1])
    x, w, bias, y, staged = (torch.empty(8) for _ in range(5))
    assert plan(x, w, bias, out=y, workspace=staged) is y
    plan.launch(1024, 2048, 512, 0, 4096, 8192, 55)
    at = [tensor.data_ptr() for tensor in (staged, w, bias)]
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), staged.data_ptr(), 0, 0], [*at, 0, y.data_ptr(), 0, 0],
        [1024, 8192, 0, 0], [8192, 2048, 512, 0, 4096, 0, 0],
    ]  # fmt: skip
    first, second, _ = kernel_calls(plan.candidate)
    assert [launched.config[0] for launched in driver.launches] == [first.blocks, second.blocks] * 2
    assert [launched.config[7] for launched in driver.launches] == [1001, 1001, 55, 55]
    with pytest.raises(BadInput, match="neither bias nor residual"):
        plan(x, w, None, None, y)
    with pytest.raises(BadInput, match="needs a workspace of"):
        plan.launch(1024, 2048, 512, 0, 4096, 0, 55)


@not_interpreted
def test_a_launch_in_parts_adds_what_lies_behind_the_staged_input(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(parted(SMALL))
    behind = Staging.of(SMALL, SPLIT, Tile.of(plan.candidate)).nbytes
    x, w, bias, residual, y = (torch.empty(8) for _ in range(5))
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8)
    plan(x, w, bias, residual, y, workspace)
    plan.launch(1024, 2048, 512, 256, 4096, 8192, 55)
    at, added = workspace.data_ptr(), [bias.data_ptr(), residual.data_ptr()]
    assert [launched.arguments for launched in driver.launches] == [
        [x.data_ptr(), at, 0, 0], [at, w.data_ptr(), *added, at + behind, 0, 0],
        [at + behind, *added, y.data_ptr(), 0, 0],
        [1024, 8192, 0, 0], [8192, 2048, 512, 256, 8192 + behind, 0, 0], [8192 + behind, 512, 256, 4096, 0, 0],
    ]  # fmt: skip
    *calls, _ = kernel_calls(plan.candidate)
    assert [launched.config[0] for launched in driver.launches] == [call.blocks for call in calls] * 2
    with pytest.raises(BadInput, match="got bias"):
        plan.launch(1024, 2048, 512, 0, 4096, 8192, 55)


@not_interpreted
@pytest.mark.parametrize("kernels", [3, 4])
def test_a_plan_is_read_as_it_was_written(kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeCudaDriver(monkeypatch)
    plan = built(offered(LAYER)[-1] if kernels == 3 else parted(SMALL))
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, PRESENT, text)
    assert isinstance(again, StagedGemmPlan)
    assert again.text == text
    assert again.workspace_bytes == plan.workspace_bytes == plan.candidate.workspace_bytes
    assert len(driver.loaded) == kernels, "each kernel is loaded once"
    with pytest.raises(BackendError, match=r"stored kernels? cannot be read"):
        BACKEND.read(plan.candidate, PRESENT, "[]")


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_staged_gemm.py")
