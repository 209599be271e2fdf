"""int8, fp8 and sums in fp16 by the implicit GEMM without a GPU: who is offered them, and that they compile."""

from __future__ import annotations

from re import escape

import pytest

import convwright as cw
from backends.interpreted import passes_in_the_interpreter
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.launching import launch
from convwright.backends.triton.multiprocessor import shared_limit
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import Refused
from convwright.tuning import asked

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200, A100 = profile("h200"), profile("a100")
LAYER = "mb32ic256ih14oc256kh3ph1 tag:nhwc"
NARROW = {"int8": Arithmetic.INT8, "fp8_e4m3": Arithmetic.FP8_ACC32, "fp8_e5m2": Arithmetic.FP8_ACC32}
SUMS_IN_FP16 = Policy(arithmetic=frozenset({Arithmetic.FP16_ACC16}))


def offers(text: str, device: DeviceFacts = H200, policy: Policy = Policy()) -> list[Offer]:
    found = TritonKernels().candidates(ConvProblem.parse(text), device, policy)
    return [offer for offer in found if offer.id.startswith("triton/implicit-gemm")]


def candidates(text: str, device: DeviceFacts = H200, policy: Policy = Policy()) -> list[Candidate]:
    return [offer for offer in offers(text, device, policy) if isinstance(offer, Candidate)]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("epilogue", ["none", "scale+residual+bias+relu"])
def test_narrow_operands_are_served(dtype: str, epilogue: str) -> None:
    found = candidates(f"{LAYER} dt:{dtype} ep:{epilogue}")
    assert found
    assert {each.arithmetic for each in found} == {NARROW[dtype]}
    assert all(Tile.of(each).bk % 32 == 0 for each in found), "tensor cores take 32 bytes at a step"


@pytest.mark.parametrize(
    ("text", "device", "words"),
    [
        ("ic32ih9oc16kh3 dt:int8", H200, "needs a channels-last `input` of int8, got stride 81 along channels"),
        ("g8ic32ih9oc64kh3 dt:int8 tag:nhwc", H200, "at least 8 input and 1 output channels, got 4 and 8"),
        ("ic32ih9oc16kh3 dt:int8 tag:nhwc ep:accumulate", H200, "does not fuse accumulate"),
        ("ic32ih9oc16kh3 dt:fp16 tag:nhwc ep:scale", H200, "does not fuse scale"),
        ("ic14564ih3oc16kh3 dt:int8 tag:nhwc", H200, "at most 131,071 int8 products per int32 sum, got 131,076"),
        ("ic32ih9oc16kh3 dt:fp8_e4m3 tag:nhwc", A100, "needs sm_89 or newer for fp8_e4m3"),
    ],
)
def test_a_refusal_names_what_it_cannot_serve(text: str, device: DeviceFacts, words: str) -> None:
    found = [*TritonKernels().candidates(ConvProblem.parse(text), device, Policy())]
    assert all(isinstance(offer, Refusal) for offer in found)
    assert any(words in offer.reason for offer in found if isinstance(offer, Refusal))


def test_sums_in_fp16_are_for_those_who_name_them() -> None:
    text = f"{LAYER} dt:fp16"
    found = candidates(text, policy=SUMS_IN_FP16)
    assert [each for each in found if each.arithmetic is Arithmetic.FP16_ACC32] == candidates(text)
    more = [each for each in found if each.algorithm == "implicit-gemm-acc16"]
    assert more
    assert {each.arithmetic for each in more} == {Arithmetic.FP16_ACC16}
    assert not candidates(f"{LAYER} dt:bf16", policy=SUMS_IN_FP16)[len(candidates(f"{LAYER} dt:bf16")) :]


@pytest.mark.parametrize("policy", [Policy(), Policy(arithmetic=frozenset({Arithmetic.FP16_ACC32}))])
def test_who_does_not_is_told_how(policy: Policy) -> None:
    (refusal,) = (each for each in offers(f"{LAYER} dt:fp16", policy=policy) if isinstance(each, Refusal))
    assert refusal.id == "triton/implicit-gemm-acc16"
    start, _, allowing = refusal.reason.partition(": ")
    assert start == "computes in fp16-acc16, which the policy must name"
    told = eval(allowing, {"Policy": Policy})
    served = {each.algorithm for each in candidates(f"{LAYER} dt:fp16", policy=told)}
    assert served == {"implicit-gemm", "implicit-gemm-acc16"}


@pytest.mark.parametrize("named", ["implicit-gemm-acc16", "implicit-gemm-acc16[bm=64]"])
def test_who_asks_for_them_by_name_is_told_as_well(named: str) -> None:
    with pytest.raises(Refused, match=rf"^triton/{escape(named)} cannot compute .*: computes in fp16-acc16, which the"):
        asked.named(f"triton/{named}", ConvProblem.parse(f"{LAYER} dt:fp16"), H200, Policy())
    reason = cw.why(f"{LAYER} dt:fp16", f"triton/{named}", "h200")
    assert not reason.serves
    assert "Policy(arithmetic=" in reason.sentence


def test_what_is_planned_for_a_device_that_is_elsewhere_lists_them() -> None:
    found = cw.find(f"{LAYER} dt:int8", device="h200", mode="heuristic")
    assert any(verdict.finding.candidate.id.startswith("triton/implicit-gemm[") for verdict in found.verdicts)
    found = cw.find(f"{LAYER} dt:fp16", policy=SUMS_IN_FP16, device="h200", mode="heuristic")
    ids = [verdict.finding.candidate.id for verdict in found.verdicts]
    assert any(each.startswith("triton/implicit-gemm-acc16[") for each in ids)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    ("text", "device", "policy"),
    [
        (f"{LAYER} dt:int8 ep:scale+bias+relu", H200, Policy()),
        (f"{LAYER} dt:int8:int8:int8", A100, Policy()),
        (f"{LAYER} dt:fp8_e4m3:fp8_e4m3:fp16 ep:scale", H200, Policy()),
        (f"{LAYER} dt:fp8_e5m2", H200, Policy()),
        (f"{LAYER} dt:fp16 ep:bias+relu", H200, SUMS_IN_FP16),
        ("mb1ic256ih14oc256kh3ph1 tag:nhwc dt:int8 ep:scale", H200, Policy()),
    ],
)
def test_what_is_listed_compiles_and_fits_in_shared_memory(text: str, device: DeviceFacts, policy: Policy) -> None:
    found = [each for each in candidates(text, device, policy) if each.arithmetic is not Arithmetic.FP16_ACC32]
    for candidate in found[::4]:
        for call in kernel_calls(candidate):
            metadata = call.compile(device.architecture).metadata
            assert metadata.shared <= shared_limit(device), candidate.id
            assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)


def test_steps_of_fp8_are_added_apart_from_tensor_cores() -> None:
    candidate = next(each for each in candidates(f"{LAYER} dt:fp8_e4m3") if Tile.of(each).bm >= 64)
    ptx = kernel_calls(candidate)[0].compile("sm_90").asm["ptx"]
    assert "wgmma.mma_async.sync.aligned" in ptx
    assert ptx.count("add.f32") >= Tile.of(candidate).bm * Tile.of(candidate).bn // (32 * Tile.of(candidate).warps)


def test_results_in_the_interpreter() -> None:
    passes_in_the_interpreter("run_low_precision.py")
