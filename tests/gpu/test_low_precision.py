"""int8 and fp8 on a live GPU: what cuDNN's planner offers is built and run. int8 has to be right bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.backends.cudnn.graph import listing as graph
from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BackendError
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import ErrorCheck
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tensors import activate, torch_dtype
from convwright.tuning.find import find
from convwright.tuning.session import Session
from convwright.tuning.trials.trial import Bench, Trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

SIZES = "mb2ic32ih12oc64kh3ph1"
# cuDNN has kernels of its own for these.
INT8 = [
    *(
        f"{SIZES} dt:int8:int8:{stored} tag:nhwc ep:{epilogue}"
        for stored in ("fp32", "int8")
        for epilogue in ("none", "bias", "relu", "residual+bias+relu")
    ),
    f"{SIZES} dt:int8",
    f"{SIZES} dt:int8:int8:int8",
    "mb3ic7ih11iw9oc5kh3kw2sh2sw1ph1pw0 dt:int8 tag:nhwc",
    "mb2ic16ih13oc32kh3ph2dh1 dt:int8:int8:int8 tag:nhwc ep:bias",
    "mb2ic64ih9oc32kh1 dt:int8:int8:int8 tag:nhwc",
    "g2mb2ic64ih12oc64kh3ph1 dt:int8 tag:nhwc",
    "mb2ic16iw50oc16kw5pw2 dt:int8 tag:nhwc",
]
# These it compiles, 30 to 900 ms each: the first few say whether they are right.
COMPILED = [f"{SIZES} dt:int8:int8:{stored} tag:nhwc ep:{ep}" for stored in ("fp16", "bf16") for ep in ("none", "bias")]
FP8 = [
    *(
        f"{SIZES} dt:{dtype}:{dtype}:{stored} tag:nhwc"
        for dtype in ("fp8_e4m3", "fp8_e5m2")
        for stored in ("fp32", "fp16")
    ),
    f"{SIZES} dt:fp8_e4m3:fp8_e4m3:bf16 tag:nhwc ep:bias+relu",
    "mb16ic128ih16oc256kh1 dt:fp8_e4m3:fp8_e4m3:fp16 tag:nhwc",
]
_FEW = 2


def listed(problem: ConvProblem, live: DeviceFacts) -> tuple[list[Candidate], list[str]]:
    """The engines, and the reasons of those that cannot serve."""
    offers = list(graph.candidates(problem, live, Policy()))
    return (
        [offer for offer in offers if isinstance(offer, Candidate)],
        [f"{offer.id}: {offer.reason}" for offer in offers if isinstance(offer, Refusal)],
    )


def exactly(problem: ConvProblem, given: dict[Role, Tensor]) -> Tensor:
    """The sums in int64 on the CPU, then what is fused; the output rounded and saturated once."""
    at = {role: tensor.cpu() for role, tensor in given.items()}
    convolve = (torch.conv1d, torch.conv2d)[problem.rank - 1]
    window = problem.stride, problem.symmetric_padding, problem.dilation, problem.groups
    y = convolve(at[Role.X].long(), at[Role.W].long(), None, *window).double()  # type: ignore[arg-type]
    y = y + at.get(Role.RESIDUAL, torch.zeros(())).double()
    y = y + at.get(Role.BIAS, torch.zeros(problem.k)).double().view(-1, *[1] * problem.rank)
    y, stored = activate(y, problem.epilogue.activation), torch_dtype(problem.output.dtype)
    return y.clamp(-128, 127).to(stored) if stored is torch.int8 else y.to(stored)


def ran(candidate: Candidate, problem: ConvProblem, live: DeviceFacts, kind: Kind) -> tuple[Tensor, dict[Role, Tensor]]:
    given = operands(problem, kind, "cuda", seed=3)
    got = Trial(candidate, Bench(problem, live, Mode.FULL, seed=0)).run(given)
    torch.cuda.synchronize()
    return got.cpu(), given


@pytest.mark.parametrize("text", INT8)
def test_every_engine_for_int8_is_right_bit_for_bit(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    candidates, refused = listed(problem, live)
    assert candidates, refused
    assert {candidate.arithmetic for candidate in candidates} == {Arithmetic.INT8}
    wrong = {}
    for candidate in candidates:
        for kind in (Kind.NORMAL, Kind.LARGE, Kind.INTEGERS):
            try:
                got, given = ran(candidate, problem, live, kind)
            except BackendError as failure:
                wrong[candidate.id] = str(failure)
                break
            if not torch.equal(got, exactly(problem, given)):
                off = (got.double() - exactly(problem, given).double()).abs().max().item()
                wrong[f"{candidate.id} on {kind} data"] = f"off by {off:g}"
    assert wrong == {}


def test_an_engine_that_is_wrong_in_planes_is_found_out(live: DeviceFacts) -> None:
    """In 9.19 one engine reads planes of int8 as if channels were the last, and is proposed first."""
    if live.architecture != "sm_90" or torch.backends.cudnn.version() != 91900:
        pytest.skip("these are engines of cuDNN 9.19 for sm_90")
    problem = ConvProblem.parse("mb4ic64ih13oc32kh1 dt:int8")
    wrong = next(each for each in listed(problem, live)[0] if each.algorithm == "engine-71")
    got, given = ran(wrong, problem, live, Kind.NORMAL)
    assert not torch.equal(got, exactly(problem, given))
    with Store.open(None) as store:
        found = find(problem, live, Policy(), mode=Mode.HEURISTIC, store=store)
        chosen = Session(Mode.HEURISTIC, store).answer(problem, live, Policy(), None, None).captured.candidate
    assert any(verdict.finding.candidate == wrong for verdict in found.verdicts)
    got, given = ran(chosen, problem, live, Kind.NORMAL)
    assert torch.equal(got, exactly(problem, given))


@pytest.mark.parametrize("text", COMPILED)
def test_what_is_compiled_for_int8_is_right_bit_for_bit(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    candidates, refused = listed(problem, live)
    if not candidates:
        assert refused
        pytest.skip(refused[0])
    got, given = ran(candidates[0], problem, live, Kind.NORMAL)
    assert torch.equal(got, exactly(problem, given)), candidates[0].id


@pytest.mark.parametrize("text", FP8)
def test_engines_for_fp8_stay_within_the_bound(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(text)
    candidates, refused = listed(problem, live)
    if torch.cuda.get_device_capability() < (8, 9):
        assert candidates == []
        pytest.skip(refused[0])
    assert candidates, refused
    check = ErrorCheck(problem, "cuda", kinds=[Kind.NORMAL, Kind.CHANNEL_SCALED, Kind.NAN])
    bench, wrong = Bench(problem, live, Mode.FULL, seed=0), {}
    for candidate in candidates[:_FEW]:
        assert candidate.arithmetic is Arithmetic.FP8_ACC32
        errors = check.errors(Trial(candidate, bench).run)
        objection = absolute_objection(problem, candidate.arithmetic, errors, Policy())
        if objection is not None:
            wrong[candidate.id] = objection
    assert wrong == {}


def test_a_search_chooses_among_what_is_exact(live: DeviceFacts) -> None:
    problem = ConvProblem.parse("mb8ic64ih28oc64kh3ph1 dt:int8:int8:int8 tag:nhwc ep:bias+relu")
    with Store.open(None) as store:
        found = find(problem, live, Policy(), mode=Mode.QUICK, store=store, budget_us=1e6)
    assert found.baseline is None
    assert found.choice is not None
    assert found.choice.measurement is not None
    assert all(error.scaled_max <= 1 for error in found.choice.measurement.errors)


def test_a_plan_takes_tensors_of_int8(live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:int8:int8:int8 tag:nhwc ep:bias+relu")
    candidates, _ = listed(problem, live)
    ready = cw.plan(problem, algorithm=candidates[0].id)
    given = operands(problem, Kind.NORMAL, "cuda")
    y = ready(given[Role.X], ready.prepare(given[Role.W]), given[Role.BIAS])
    assert torch.equal(y.cpu(), exactly(problem, given))
    with pytest.raises(cw.BadInput, match=r"use `cw\.plan` for this dtype"):
        cw.conv2d(given[Role.X], given[Role.W], padding=1)


def test_reference_direct_is_exact_on_a_gpu_too() -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:int8:int8:fp16 ep:residual+bias+relu")
    ready = cw.plan(problem, algorithm="reference/direct")
    given = operands(problem, Kind.LARGE, "cuda")
    y = ready(given[Role.X], ready.prepare(given[Role.W]), given[Role.BIAS], given[Role.RESIDUAL])
    assert torch.equal(y.cpu(), exactly(problem, given))
