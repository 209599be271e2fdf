"""The implicit GEMM without a GPU: what it serves, that it compiles, how it is launched, and its results."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from backends.fake_cuda_driver import FakeCudaDriver
from backends.interpreted import passes_in_the_interpreter
from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import MOST_TILES, algorithm_of, algorithms_of
from convwright.backends.triton.gemm.tiles import TILES, Tile
from convwright.backends.triton.implicit_gemm.offers import KERNEL, blocks, kernel_calls, sums_bytes
from convwright.backends.triton.launching import launch
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.launching.launch import Binary, launch_of
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.backends.triton.packing.weight import channels_last_of
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BackendError

pytest.importorskip("triton")
not_interpreted = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

BACKEND = TritonKernels()
H200 = profile("h200")
A100 = replace(H200, name="NVIDIA A100", architecture="sm_80", sm_count=108)
SERVED = CASES | VOLUMES | WIDE_GROUPS
LAYER = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc ep:bias+relu")


def offers(problem: ConvProblem, device: DeviceFacts) -> list[Offer]:
    found = BACKEND.candidates(problem, device, Policy())
    return [offer for offer in found if offer.id.startswith("triton/implicit-gemm")]


def offered(problem: ConvProblem, device: DeviceFacts = H200) -> list[Candidate]:
    return [offer for offer in offers(problem, device) if isinstance(offer, Candidate)]


def refusals(problem: ConvProblem, device: DeviceFacts = H200) -> list[Refusal]:
    found = offers(problem, device)
    assert all(isinstance(offer, Refusal) for offer in found)
    return [offer for offer in found if isinstance(offer, Refusal)]


@not_interpreted
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g4ic8ih9oc64kh3 tag:nhwc dt:fp16",
            "at least 8 input and 1 output channels, got 2 and 16; `direct` supports",
        ),
        ("g4ic64ih9oc16kh3 dt:fp16", "at least 8 input and 8 output channels, got 16 and 4; `direct` supports"),
        ("ic8ih9oc8kh3 tag:nhwc dt:fp64", "computes only fp16, bf16, fp32, int8, fp8_e4m3, fp8_e5m2, got fp64"),
        ("mb0ic8ih9oc8kh3 tag:nhwc dt:fp16", "needs a batch of at least 1, got 0"),
        ("mb1ic1ih40000oc1kh1 tag:nhwc dt:fp16", "got 1,600,000,000"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, words: str) -> None:
    found = refusals(ConvProblem.parse(text))
    assert found[0].id == "triton/implicit-gemm"
    assert all(words in refusal.reason for refusal in found)


@not_interpreted
def test_an_operand_without_neighbours_is_refused() -> None:
    x = TensorSpec((2, 8, 9, 9), DType.FP16, (2592, 162, 18, 2), 2)
    refusal, *_ = refusals(replace(ConvProblem.parse("mb2ic8ih9oc8kh3 dt:fp16"), x=x))
    assert "along the channels or the width of `input`, got strides 2592, 162, 18, 2" in refusal.reason


@not_interpreted
def test_each_fp32_algorithm_refuses_by_its_own_name() -> None:
    found = refusals(ConvProblem.parse("g4ic8ih9oc8kh3 tag:nhwc dt:fp32"))
    assert [refusal.id for refusal in found] == [algorithm.id for algorithm in algorithms_of(KERNEL, DType.FP32)]


@not_interpreted
def test_a_device_that_cannot_run_kernels_is_named() -> None:
    turing = replace(H200, name="NVIDIA T4", architecture="sm_75")
    assert "NVIDIA T4 is sm_75" in refusals(LAYER, turing)[0].reason
    cpu = DeviceFacts("some CPU", "cpu", "x86_64", torch_name="cpu")
    assert "needs an NVIDIA GPU of architecture sm_80 or newer, got some CPU" in refusals(LAYER, cpu)[0].reason
    with pytest.raises(BackendError, match="got some CPU"):
        BACKEND.build(offered(LAYER)[0], cpu)


def test_without_triton_there_is_one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.backends.triton.backend.find_spec", lambda name: None)
    (refusal,) = refusals(LAYER)
    assert "triton, which is not installed" in refusal.reason


@not_interpreted
@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
def test_few_candidates_are_listed_always_the_same(name: str, dtype: DType) -> None:
    found = offered(SERVED[name].problem(dtype))
    assert [each.id for each in found] == [each.id for each in offered(SERVED[name].problem(dtype))]
    assert len({each.id for each in found}) == len(found)
    for arithmetic in {each.arithmetic for each in found}:
        assert 1 <= sum(each.arithmetic is arithmetic for each in found) <= MOST_TILES
    assert all(each.source is Source.RULE for each in found)
    assert all(each.workspace_bytes == sums_bytes(Tile.of(each), each.problem) for each in found)
    assert all(Tile.of(each).config == each.config for each in found)


@not_interpreted
def test_an_id_tells_the_whole_configuration() -> None:
    assert "triton/implicit-gemm[bm=128,bn=128,bk=64,warps=8,stages=3]" in [each.id for each in offered(LAYER)]


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.architecture)
@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_what_is_listed_compiles_and_fits_in_shared_memory(dtype: DType, device: DeviceFacts) -> None:
    problem = CASES["3x3"].problem(dtype)
    for candidate in offered(problem, device)[:: 3 if device is H200 else 5]:
        metadata = kernel_calls(candidate)[0].compile(device.architecture).metadata
        assert metadata.shared <= shared_limit(device), candidate.id
        assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(
    ("dtype", "x", "y"),
    [(dtype, *layouts) for dtype, layouts in zip((DType.FP32, DType.FP16, DType.FP32), PLANES, strict=True)],
)
def test_what_is_listed_for_operands_in_planes_compiles(dtype: DType, x: Layout, y: Layout) -> None:
    for candidate in offered(CASES["3x3"].problem(dtype, x, y))[::4]:
        assert kernel_calls(candidate)[0].compile("sm_90").metadata.shared <= shared_limit(H200), candidate.id


@pytest.mark.slow
@not_interpreted
@pytest.mark.parametrize(
    "text",
    [
        "g32mb32ic256ih56oc256kh3ph1 tag:nhwc dt:fp16",
        "g32mb32ic512ih28oc512kh3ph1 ep:bias+relu",
        "mb8ic64id8ih56oc64kd3kh3pd1ph1 tag:nhwc ep:bias",
        "g3mb2ic60id8ih56oc72kd3kh3sd2pd1ph1 ep:residual dt:fp16",
    ],
)
def test_what_is_listed_for_groups_and_volumes_compiles(text: str) -> None:
    for candidate in offered(ConvProblem.parse(text))[::8]:
        metadata = kernel_calls(candidate)[0].compile("sm_90").metadata
        assert metadata.shared <= shared_limit(H200), candidate.id
        assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


@not_interpreted
def test_a_grid_has_tiles_of_their_own_for_each_group() -> None:
    tile = Tile(64, 64, 32, 4, 4)
    for text, tiles in (("mb2ic80ih8oc80kh1", 2 * 2), ("g5mb2ic80ih8oc80kh1", 2 * 5), ("g2ic16id4ih8oc160kh1", 4 * 4)):
        assert blocks(ConvProblem.parse(f"{text} dt:fp16"), tile) == tiles, text


@pytest.mark.first_cases(1)
@not_interpreted
@pytest.mark.parametrize(("channels", "at_once"), [(16, 16), (20, 8), (18, 4)])
def test_groups_are_loaded_as_they_are_aligned(channels: int, at_once: int) -> None:
    """Where the first group is aligned, others are only as far as a group's channels are."""
    problem = ConvProblem.parse(f"g4mb4ic{4 * channels}ih14oc{4 * channels}kh3ph1 tag:nhwc dt:fp16")
    for candidate in offered(problem)[::4]:
        ptx = kernel_calls(candidate)[0].compile("sm_90").asm["ptx"]
        assert max(loaded_at_once(ptx)) == at_once, candidate.id


def loaded_at_once(ptx: str) -> set[int]:
    """Bytes that one instruction copies into shared memory."""
    return {int(nbytes, 16) for nbytes in re.findall(r"cp\.async\.c[ag]\.shared\.global[^;]*?, (0x[0-9a-f]+)", ptx)}


@pytest.mark.slow
@not_interpreted
def test_the_bound_on_shared_memory_holds_for_the_largest_tiles() -> None:
    for dtype in (DType.FP16, DType.FP32):
        for algorithm in algorithms_of(KERNEL, dtype):
            tile = TILES[algorithm.arithmetic][0]
            problem = replace(LAYER, **{role: replace(getattr(LAYER, role), dtype=dtype) for role in "xwy"})
            candidate = Candidate(
                problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, 0, True, Source.RULE
            )
            bound = tile.shared_bytes(dtype.nbytes, split=algorithm_of(candidate, KERNEL).split)
            assert kernel_calls(candidate)[0].compile("sm_90").metadata.shared <= bound, candidate.id


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeCudaDriver:
    return FakeCudaDriver(monkeypatch)


@not_interpreted
def test_a_launch_hands_the_driver_addresses_stream_and_grid(driver: FakeCudaDriver) -> None:
    call = kernel_calls(offered(LAYER)[0])[0]
    ready = launch_of(call, replace(H200, torch_name="cuda:1"))
    x, w, bias, y = (torch.empty(8) for _ in range(4))
    ready(x, w, bias, None, y)
    (launched,) = driver.launches
    assert launched.arguments == [x.data_ptr(), w.data_ptr(), bias.data_ptr(), 0, y.data_ptr(), 0, 0]
    shared = call.compile("sm_90").metadata.shared
    assert launched.config[:8] == [call.blocks, 1, 1, 32 * call.warps, 1, 1, shared, 1001]
    assert launched.function == 77
    launch_of(call, replace(H200, torch_name="cuda:1"))
    assert len(driver.loaded) == 1, "a kernel is loaded once"


@not_interpreted
def test_a_failed_launch_is_told_in_words(driver: FakeCudaDriver) -> None:
    driver.status = 719
    ready = launch_of(kernel_calls(offered(LAYER)[0])[0], replace(H200, torch_name="cuda:0"))
    with pytest.raises(BackendError, match=r"cuda:0 failed: CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        ready(*(torch.empty(8) for _ in range(5)))


@not_interpreted
def test_a_device_elsewhere_can_be_listed_but_not_built_for() -> None:
    with pytest.raises(BackendError, match="NVIDIA H200 is not"):
        BACKEND.build(offered(LAYER)[0], H200)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_implicit_gemm.py")


# What is compiled can be written down.


class Compiled:
    """As Triton gives a compiled kernel."""

    hash = "abc"
    asm: ClassVar[dict[str, bytes]] = {"cubin": bytes(range(256)) * 40}

    def __init__(self, **more: Any) -> None:
        needs = {"global_scratch_size": 0, "profile_scratch_size": 0, "num_ctas": 1}
        options = {"launch_cooperative_grid": False, "launch_pdl": False, "target": SimpleNamespace(arch=90)}
        self.metadata = SimpleNamespace(name="implicit_gemm", num_warps=4, shared=70_000, **needs | options | more)


CALL = KernelCall(SimpleNamespace(arg_names=["x", "w", "y"]), dict.fromkeys("xwy", ("fp16", 16)), {}, 17, 4, 3)


def test_a_compiled_kernel_is_read_as_it_was_written() -> None:
    binary = Binary.of(Compiled(), CALL)
    assert (binary.blocks, binary.warps, binary.shared_bytes, binary.operands) == (17, 4, 70_000, 3)
    assert Binary.read(binary.text) == binary
    assert len(binary.text) < 2000


def test_a_kernel_that_needs_more_than_operands_is_refused() -> None:
    with pytest.raises(BackendError, match="needs unsupported scratch memory, clusters or a cooperative launch"):
        Binary.of(Compiled(num_ctas=2), CALL)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cubin": "no"}', '{"cubin": 3, "name": "x"}'])
def test_what_is_no_kernel_is_not_read(text: str) -> None:
    with pytest.raises(BackendError, match="a stored kernel cannot be read"):
        Binary.read(text)


def test_listing_and_reading_load_no_triton() -> None:
    program = (
        "import sys; from convwright.backends.triton import backend;"
        "from convwright.backends.triton.launching import launch;"
        "import convwright.backends.triton.implicit_gemm.plan;"
        "from convwright.core.policy import Policy; from convwright.core.problem import ConvProblem;"
        "from convwright.core.profiles import profile;"
        "problem = ConvProblem.parse('mb2ic16ih10oc16kh3ph1 dt:fp16 tag:nhwc');"
        "assert len(list(backend.TritonKernels().candidates(problem, profile('h200'), Policy()))) > 2;"
        "assert 'triton' not in sys.modules"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("weight", "is_itself"),
    [
        (torch.randn(8, 4, 3, 3), False),
        (torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last), True),
        (torch.randn(8, 4, 5), False),
        (torch.randn(4, 2, 3, 3, 3), False),
        (torch.randn(64, 64, 1, 1), True),
        (torch.randn(16, 1, 3, 3), True),
        (torch.randn(16, 4, 1), True),
        (torch.randn(1, 4, 3, 3).expand(8, 4, 3, 3), False),
        (torch.randn(8, 8, 3, 3)[:, ::2], False),
        (torch.randn(8, 2, 1, 1)[:, :1], False),
    ],
    ids=lambda each: f"{tuple(each.shape)} {each.stride()}" if isinstance(each, torch.Tensor) else str(each),
)
def test_a_weight_whose_channels_lie_last_is_taken_as_it_is(weight: torch.Tensor, is_itself: bool) -> None:
    laid = channels_last_of(weight)
    assert (laid is weight) is is_itself
    in_memory = torch.as_strided(laid, (laid.numel(),), (1,), laid.storage_offset())
    assert torch.equal(in_memory, weight.movedim(1, -1).reshape(-1))
