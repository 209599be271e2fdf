"""int8 and fp8 from Python: posed by tensors or text, found, planned; refused where PyTorch's functions are meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.core.policy import Policy
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.session import Session

SIZES = "mb2ic8ih10oc12kh3ph1"
NARROW = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)


def whole(*shape: int) -> Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(sum(shape)))


X, W, B = whole(2, 8, 10, 10), whole(12, 8, 3, 3), whole(12).float()
Y = torch.conv2d(X, W, padding=1)


@pytest.mark.parametrize("dtype", NARROW)
def test_tensors_pose_the_problem(dtype: torch.dtype) -> None:
    x, w = X.float().to(dtype), W.float().to(dtype)
    posed = cw.problem(x, w, B, padding=1)
    assert posed == cw.ConvProblem.of(X.shape, W.shape, padding=1, dtype=str(dtype), epilogue="bias")
    for stored in (torch.float32, torch.float16, torch.bfloat16):
        held = cw.problem(x, w, residual=torch.zeros(Y.shape, dtype=stored), padding=1)
        assert held.y.dtype == cw.ConvProblem.of((1, 1, 1), (1, 1, 1), dtype=str(stored)).y.dtype


@pytest.mark.parametrize("text", ["dt:int8", "dt:int8:int8:fp16", "dt:int8:int8:int8 ep:bias+relu", "dt:int8 ep:bias"])
def test_a_plan_computes_int8_exactly(text: str) -> None:
    x, w = X.to(torch.int8), W.to(torch.int8)
    ready = cw.plan(f"{SIZES} {text}", device="cpu", algorithm="reference/direct")
    bias = B if "bias" in text else None
    got = ready(x, ready.prepare(w), bias)
    exact = Y if bias is None else Y + B.view(-1, 1, 1)
    exact = exact.relu() if "relu" in text else exact
    assert torch.equal(got, (exact.clamp(-128, 127) if got.dtype is torch.int8 else exact).to(got.dtype))


def test_find_on_a_cpu_shows_what_computes_it() -> None:
    found = cw.find(X.to(torch.int8), W.to(torch.int8), padding=1, device="cpu", mode="heuristic")
    assert found.baseline is None
    assert "reference/direct" in {verdict.finding.candidate.id for verdict in found.verdicts}
    assert "torch/default" in {refusal.id for refusal in found.refusals}


def test_a_search_measures_and_checks_it_without_pytorchs_own_call() -> None:
    found = cw.find(f"{SIZES} dt:int8 ep:bias", device="cpu", mode="quick", budget_us=1e6)
    checked = [v for v in found.verdicts if v.finding.measurement is not None and v.finding.measurement.errors]
    assert checked
    for verdict in checked:
        assert verdict.finding.measurement is not None
        assert all(error.scaled_max <= 1 for error in verdict.finding.measurement.errors)
        assert not verdict.finding.failure


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.HEURISTIC])
def test_a_choice_needs_no_call_of_pytorchs(mode: Mode) -> None:
    problem = cw.ConvProblem.parse(f"{SIZES} dt:fp8_e5m2")
    with Store.open(None) as store:
        choice = Session(mode, store).answer(problem, device_facts("cpu"), Policy(), None, None).captured
    assert choice.candidate.leaf.id == "reference/direct"


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: cw.conv2d(x, w, padding=1),
        lambda x, w: cw.conv2d(x, w, algorithm="reference/direct"),
        lambda x, w: cw.conv2d(x, w, policy=Policy()),
        lambda x, w: cw.conv2d(x[0], w),
        lambda x, w: cw.conv_transpose2d(x[:, :, :, :], w.transpose(0, 1)),
        lambda x, w: cw.conv2d_into(torch.empty(Y.shape), x, w, padding=1),
    ],
)
def test_functions_that_stand_for_pytorchs_refuse_in_one_sentence(
    dtype: torch.dtype, call: Callable[[Tensor, Tensor], Tensor]
) -> None:
    refused = r"takes the dtypes of PyTorch's function, got .*; use `cw\.plan` for this dtype( \(PyTorch says: .*\))?$"
    with pytest.raises(BadInput, match=refused):
        call(X.float().to(dtype), W.float().to(dtype))


def test_unmodified_code_gets_what_pytorch_gives() -> None:
    x, w = X.to(torch.int8), W.to(torch.int8)
    expected = torch.nn.functional.conv2d(x, w)
    cw.enable()
    try:
        assert torch.equal(torch.nn.functional.conv2d(x, w), expected)
    finally:
        cw.disable()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda x, w: cw.find(x, w.float()), "`weight` must be torch.int8 on cpu like `input`, got torch.float32"),
        (lambda x, w: cw.find(x.half(), w), "`weight` must be torch.float16 on cpu like `input`, got torch.int8"),
        (lambda x, w: cw.find(x, w, B.half()), "`bias` must be torch.float32 on cpu beside an `input` of torch.int8"),
        (
            lambda x, w: cw.find(x, w, residual=Y),
            "`residual` must be torch.float32 or torch.float16 or torch.bfloat16 or",
        ),
        (lambda x, w: cw.find(x, w, direction="backward_data"), "int8 is computed in the forward direction only"),
        (
            lambda x, w: cw.emit_c(f"{SIZES} dt:int8", device="h200"),
            "a C file computes only fp64, .*, got int8",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(ask: Callable[[Tensor, Tensor], object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ask(X.to(torch.int8), W.to(torch.int8))


def test_pytorchs_own_call_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="PyTorch's own call has no fp32 sums of int8"):
        cw.plan(f"{SIZES} dt:int8", device="cpu", algorithm="torch/default")


@pytest.mark.parametrize("epilogue", ["scale", "scale+bias+relu"])
def test_sums_of_int8_are_scaled_in_fp32(epilogue: str) -> None:
    found = cw.find(f"mb2ic16ih9oc8kh3ph1 dt:int8:int8:fp32 ep:{epilogue}", device="cpu", mode="full", budget_us=4e5)
    assert found.choice is not None
    assert found.choice.candidate.id.startswith("unfuse(")
    x, w = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((2, 16, 9, 9), (8, 16, 3, 3)))
    scale, bias = torch.rand(8) / 1000, torch.rand(8)
    ready = cw.plan(found.problem, algorithm=found.choice.candidate.id, device="cpu")
    got = ready(x, ready.prepare(w), bias if "bias" in epilogue else None, scale=scale)
    exact = torch.conv2d(x.double(), w.double(), padding=1) * scale.double().view(-1, 1, 1)
    if "bias" in epilogue:
        exact = (exact + bias.double().view(-1, 1, 1)).relu()
    torch.testing.assert_close(got.double(), exact, rtol=3e-7, atol=3e-7)
