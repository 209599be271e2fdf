from dataclasses import replace

import pytest

from backends.fake_cudnn import GPU, FakeCudnn, one
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.library import Library, Missing
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput, Refused

CPU = DeviceFacts("a CPU", "cpu", "x86_64", torch_name="cpu")
PROBLEM = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3))


@pytest.fixture
def fake(monkeypatch):
    return FakeCudnn(monkeypatch)


@pytest.mark.parametrize(("device", "reason"), [(CPU, "needs an NVIDIA GPU"), (profile("a100"), "unknown on sm_80: ")])
@pytest.mark.parametrize("direction", Direction)
def test_where_nothing_is_known_every_algorithm_is_refused_in_words(device, reason, direction):
    problem = PROBLEM.asking(direction)
    offers = list(classic.candidates(problem, device, Policy()))
    names = [algorithm.name for algorithm in classic.FAMILIES[direction].algorithms]
    assert [offer.id for offer in offers] == [
        *(f"cudnn/{name}" for name in names), *(f"cudnn/{name}[math=tf32]" for name in names)
    ]  # fmt: skip
    assert all(isinstance(offer, Refusal) and reason in offer.reason for offer in offers)


def test_rules_answer_for_a_device_elsewhere(monkeypatch):
    monkeypatch.setattr(classic, "load", lambda: pytest.fail("rules need no cuDNN"))
    problem = ConvProblem.of((32, 64, 28, 28), (64, 64, 3, 3), padding=1)
    for device in (profile("h100"), profile("h200")):
        offers = {offer.id: offer for offer in classic.candidates(problem, device, Policy())}
        assert len(offers) == 16
        served = [name for name, offer in offers.items() if not isinstance(offer, Refusal)]
        names = ("implicit-gemm", "implicit-precomp-gemm", "gemm", "fft", "fft-tiling", "winograd-nonfused")
        assert served == [*(f"cudnn/{name}" for name in names), *(f"cudnn/{name}[math=tf32]" for name in names)]
        fft = offers["cudnn/fft"]
        assert (fft.source, fft.arithmetic, fft.deterministic, fft.saves_products) == (
            Source.RULE, Arithmetic.FP32, True, True
        )  # fmt: skip
        assert fft.workspace_bytes == 64 * 64 * 9 * 4 + 2 * (32 * 64 + 64 * 64) * 32 * 17 * 8
        assert offers["cudnn/implicit-precomp-gemm"].workspace_bytes == 1024
        assert offers["cudnn/gemm[math=tf32]"].workspace_bytes == offers["cudnn/gemm"].workspace_bytes


def test_an_epilogue_elsewhere_is_computed_by_one_algorithm():
    fused = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), epilogue="bias+relu")
    offers = list(classic.candidates(fused, profile("h200"), Policy()))
    assert [offer.id for offer in offers if not isinstance(offer, Refusal)] == [
        "cudnn/implicit-precomp-gemm", "cudnn/implicit-precomp-gemm[math=tf32]"
    ]  # fmt: skip


def test_tf32_is_refused_where_the_device_has_none(fake):
    turing = DeviceFacts("a T4", "cuda", "sm_75", torch_name="cuda:0")
    offers = list(classic.candidates(PROBLEM, turing, Policy()))
    assert [isinstance(offer, Refusal) for offer in offers] == [False] * 8 + [True] * 8
    assert offers[-1].reason == "a T4 (sm_75) has no TF32"


def test_what_cannot_be_described_is_refused_for_every_algorithm(fake):
    uneven = replace(PROBLEM, padding=((0, 1), (1, 0)), y=TensorSpec((2, 4, 8, 10), DType.FP32))
    assert all("needs equal padding" in offer.reason for offer in classic.candidates(uneven, GPU, Policy()))


def test_a_missing_library_is_the_reason(monkeypatch):
    monkeypatch.setattr(classic, "load", lambda: Missing("cuDNN is not here"))
    assert {offer.reason for offer in classic.candidates(PROBLEM, GPU, Policy())} == {"cuDNN is not here"}


def test_offers_carry_what_cudnn_answers(fake):
    found = one(PROBLEM, "cudnn/fft-tiling")
    assert (found.workspace_bytes, found.arithmetic, found.deterministic) == (640, Arithmetic.FP32, True)
    assert found.source is Source.PLANNER
    assert one(PROBLEM, "cudnn/gemm[math=tf32]").arithmetic is Arithmetic.TF32
    half = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), dtype="fp16")
    assert next(offer.id for offer in classic.candidates(half, GPU, Policy())) == "cudnn/implicit-gemm"
    assert len(list(classic.candidates(half, GPU, Policy()))) == 8


def test_known_nondeterminism_is_said(fake):
    backward = PROBLEM.asking(Direction.BACKWARD_DATA), PROBLEM.asking(Direction.BACKWARD_WEIGHT)
    loose = [[o.id for o in classic.candidates(p, GPU, Policy()) if not o.deterministic] for p in backward]
    assert [[name for name in names if "[" not in name] for names in loose] == [
        ["cudnn/algo-0"], ["cudnn/algo-0", "cudnn/algo-3"]
    ]  # fmt: skip


def test_cudnns_refusal_keeps_its_words(fake):
    fake.answers["cudnnGetConvolutionForwardWorkspaceSize"] = 3002
    offers = list(classic.candidates(PROBLEM, GPU, Policy()))
    assert {offer.reason for offer in offers} == {"cuDNN does not support this shape (status 3002)"}


def test_descriptors_that_cudnn_rejects_become_refusals(fake):
    fake.answers["cudnnSetTensorNdDescriptor"] = 2000
    offers = list(classic.candidates(PROBLEM, GPU, Policy()))
    assert all("cudnnSetTensorNdDescriptor: cuDNN was given a bad parameter" in offer.reason for offer in offers)


def test_only_one_algorithm_computes_an_epilogue(fake):
    fused = ConvProblem.of((2, 3, 9, 11), (4, 3, 3, 3), epilogue="bias+relu")
    offers = list(classic.candidates(fused, GPU, Policy()))
    assert [offer.id for offer in offers if not isinstance(offer, Refusal)] == [
        "cudnn/implicit-precomp-gemm", "cudnn/implicit-precomp-gemm[math=tf32]"
    ]  # fmt: skip
    assert "`unfuse`" in offers[0].reason


def test_building_what_cudnn_no_longer_serves_is_refused(fake):
    found = one(PROBLEM, "cudnn/direct")
    fake.answers["cudnnGetConvolutionForwardWorkspaceSize"] = 3000
    with pytest.raises(Refused, match=r"cudnn/direct: cuDNN does not support this \(status 3000\)"):
        classic.build(found, GPU)


def test_building_for_an_absent_device_is_refused(fake):
    with pytest.raises(Refused, match="needs a device of this machine"):
        classic.build(one(PROBLEM, "cudnn/gemm"), profile("h200"))


def test_an_unknown_algorithm_is_refused_by_name():
    unknown = Candidate(PROBLEM, "cudnn", "magic", (), Arithmetic.FP32, 0, True, Source.PLANNER)
    with pytest.raises(BadInput, match=r"implicit-gemm, .* got 'cudnn/magic'"):
        classic.build(unknown, GPU)


def test_a_library_without_the_classic_api_is_refused_in_words(monkeypatch):
    bare = Library(99900, "fake", {}, "which has no classic API: its function cudnnConvolutionForward is missing")
    monkeypatch.setattr(classic, "load", lambda: bare)
    offers = list(classic.candidates(PROBLEM, GPU, Policy()))
    said = "this is cuDNN 9.99.0, which has no classic API: its function cudnnConvolutionForward is missing"
    assert {offer.reason for offer in offers} == {said}
    candidate = Candidate(PROBLEM, "cudnn", "gemm", (), Arithmetic.FP32, 0, True, Source.RULE)
    with pytest.raises(Refused, match="has no classic API"):
        classic.build(candidate, GPU)
