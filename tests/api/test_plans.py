"""Plans for whoever calls them themselves: on tensors, on addresses, on arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from convwright.api.foreign_arrays import OperandForm, address_of, checked_address
from convwright.api.plans import BoundPlan
from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts

TEXT = "mb2ic4ih8oc6kh3ph1 ep:bias"


class Recorder:
    """A plan that runs on addresses, and remembers which."""

    workspace_bytes, writes_out = 64, True

    def __init__(self, problem: ConvProblem) -> None:
        self.candidate = Candidate(problem, "made", "up", (), Arithmetic.FP32, 64, True, Source.RULE)
        self.launched: list[tuple[int, ...]] = []

    def prepare(self, weight: torch.Tensor) -> torch.Tensor:
        return torch.stack((weight, weight))

    def __call__(self, *operands: Any) -> torch.Tensor:
        raise NotImplementedError

    def launch(self, *addresses: int) -> None:
        self.launched.append(addresses)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(ConvProblem.parse(TEXT))


@pytest.fixture
def bound(recorder: Recorder) -> BoundPlan:
    return BoundPlan(recorder, device_facts("cpu"))


@pytest.fixture
def operands() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3), torch.randn(6), torch.empty(2, 6, 8, 8)


@pytest.mark.parametrize("algorithm", [None, "reference/gemm", "torch/default", "relayout(nhwc, torch/default)"])
def test_a_plan_computes(algorithm: str | None, operands: tuple[torch.Tensor, ...]) -> None:
    x, w, bias, out = operands
    ready = cw.plan(TEXT, algorithm=algorithm, device="cpu")
    torch.testing.assert_close(ready(x, ready.prepare(w), bias), F.conv2d(x, w, bias, padding=1))
    if ready.workspace_bytes:
        workspace = torch.empty(ready.workspace_bytes, dtype=torch.uint8)
        assert ready(x, ready.prepare(w), bias, out=out, workspace=workspace) is out
        torch.testing.assert_close(out, F.conv2d(x, w, bias, padding=1))


@pytest.mark.parametrize("algorithm", ["torch/default", "split-batch(2, torch/default)", "reference/gemm"])
@pytest.mark.parametrize("ep", ["bias", "scale+bias"])
def test_inside_of_autocast_a_plan_computes_what_its_problem_says(
    algorithm: str, ep: str, operands: tuple[torch.Tensor, ...]
) -> None:
    rare = {"scale": torch.ones(6)} if "scale" in ep else {}
    algorithm = f"unfuse({algorithm})" if rare else algorithm
    ready = cw.plan(f"mb2ic4ih8oc6kh3ph1 ep:{ep}", algorithm=algorithm, device="cpu")
    x, w, b, _ = operands
    with torch.autocast("cpu", torch.bfloat16):
        y = ready(x, ready.prepare(w), b, **rare)
    torch.testing.assert_close(y, F.conv2d(x, w, b, padding=1))


def test_a_plan_of_an_algorithm_that_the_policy_forbids_is_refused() -> None:
    policy = cw.Policy(max_workspace_bytes=0)
    for text in (TEXT, "linear mb8ic8oc8"):
        assert cw.plan(text, algorithm="torch/default", device="cpu", policy=policy).candidate.id == "torch/default"
    with pytest.raises(Refused, match=r"^the policy forbids reference/gemm, which needs .* workspace, 0 are allowed: "):
        cw.plan(TEXT, algorithm="reference/gemm", device="cpu", policy=policy)


def test_a_plan_says_what_it_is() -> None:
    ready = cw.plan(ConvProblem.parse(TEXT), algorithm="reference/gemm", device="cpu")
    assert ready.candidate.id == "reference/gemm"
    assert repr(ready).startswith("<BoundPlan: reference/gemm for g1mb2ic4")
    assert repr(ready).endswith("on cpu>")


def test_addresses_go_through_as_they_are(bound: BoundPlan, recorder: Recorder) -> None:
    bound.launch(16, 32, 48, 64, 7, workspace=80)
    bound.launch(16, 32, None, 64)
    assert recorder.launched == [(16, 32, 48, 0, 64, 80, 7), (16, 32, 0, 0, 64, 0, 0)]


def test_arrays_of_any_library_are_taken(
    bound: BoundPlan, recorder: Recorder, operands: tuple[torch.Tensor, ...]
) -> None:
    _, w, bias, out = operands
    packed = bound.prepare(w)
    images = np.zeros((2, 4, 8, 8), np.float32)
    bound.launch(images, packed, bias, out.numpy(), 3)
    assert recorder.launched == [
        (images.ctypes.data, packed.data_ptr(), bias.data_ptr(), 0, out.data_ptr(), 0, 3)
    ]  # fmt: skip


class CudaArray:
    """What other libraries hand over, around memory that is in fact a CPU's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = {"data": (tensor.data_ptr(), False)}


def test_an_array_with_cudas_interface_is_taken_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def as_tensor(array: CudaArray, device: object) -> torch.Tensor:
        asked.append(device)
        return array.tensor

    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    array, there = CudaArray(torch.ones(3)), torch.device("cpu")
    assert address_of(array) == array.tensor.data_ptr()
    form = OperandForm((3,), (1,), torch.float32, 1, "a test says")
    assert checked_address(array, form, "x", there) == array.tensor.data_ptr()
    assert asked == ["cuda", there]


def test_an_array_of_another_gpu_is_refused_and_no_copy_of_it_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "as_tensor", lambda array, device: array.tensor.clone())
    array, form = CudaArray(torch.ones(3)), OperandForm((3,), (1,), torch.float32, 1, "a test says")
    for address in (address_of, lambda array: checked_address(array, form, "x", torch.device("cpu"))):
        with pytest.raises(BadInput, match="an array must be on cpu, got one on another device"):
            address(array)
    empty = CudaArray(torch.ones(0))
    assert address_of(empty) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda x, w, y: (x.double(), w, y),
            "`x` must be torch.float32, as the plan's problem says, got torch.float64",
        ),
        (lambda x, w, y: (x[:1], w, y), r"`x` must have the sizes \(2, 4, 8, 8\), as .*, got \(1, 4, 8, 8\)"),
        (
            lambda x, w, y: (x.to(memory_format=torch.channels_last), w, y),
            r"`x` must have the strides \(256, 64, 8, 1\), as",
        ),
        (lambda x, w, y: (x, w[0], y), r"`w` must have the sizes \(2, 6, 4, 3, 3\), as `prepare`"),
        (lambda x, w, y: (x, w, y.to("meta")), "`y` must be on cpu, as the plan is, got an array on meta"),
        (lambda x, w, y: (x, w, "y"), "an operand must be an address, a tensor, or an array with __dlpack__"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(
    bound: BoundPlan, operands: tuple[torch.Tensor, ...], change: Any, said: str
) -> None:
    x, w, bias, out = operands
    x, w, out = change(x, bound.prepare(w), out)
    with pytest.raises(BadInput, match=said):
        bound.launch(x, w, bias, out)


class Taken:
    """What a call of a plan is given, one of which does not fit."""

    def __init__(self, ready: BoundPlan, operands: tuple[torch.Tensor, ...]) -> None:
        x, w, bias, out = operands
        scratch = torch.empty(ready.workspace_bytes, dtype=torch.uint8)
        self.given = {"first": x, "second": ready.prepare(w), "bias": bias, "out": out, "workspace": scratch}

    def but(self, name: str, change: Any) -> dict[str, torch.Tensor]:
        return self.given | {name: change(self.given[name])}


@pytest.mark.parametrize("algorithm", ["reference/gemm", "torch/default", "torch/onednn"])
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("first", lambda x: x[:1], r"`x` must have the sizes \(2, 4, 8, 8\), as the plan's problem says, got \(1,"),
        ("first", lambda x: torch.cat((x, x)), r"`x` must have the sizes .* got \(4, 4, 8, 8\)"),
        ("first", torch.Tensor.half, "`x` must be torch.float32, .* got torch.float16"),
        ("first", lambda x: x.to("meta"), "`x` must be on cpu, as the plan is, got an array on meta"),
        ("first", lambda x: x.to(memory_format=torch.channels_last), "`x` must have the strides"),
        ("first", lambda x: torch.empty(x.numel() + 1)[1:].view_as(x), "`x` must begin at a multiple of 16 bytes"),
        ("second", lambda w: w[:-1], "`w` must have the sizes .*, as `prepare` packs it"),
        ("bias", lambda b: b[:5], r"`bias` must have the sizes \(6,\)"),
        ("out", lambda y: y[:1], r"`y` must have the sizes \(2, 6, 8, 8\)"),
        ("first", lambda x: None, "`x` is missing, got None"),
        ("first", torch.Tensor.tolist, "a plan is called with tensors, got list"),
        ("workspace", lambda scratch: 3, "`workspace` must be a tensor, got int"),
    ],
)
def test_a_call_refuses_what_does_not_fit(
    algorithm: str, name: str, change: Any, said: str, operands: tuple[torch.Tensor, ...]
) -> None:
    if algorithm == "torch/onednn" and name == "second":
        pytest.skip("what oneDNN packs cannot be sliced")
    ready = cw.plan(TEXT, algorithm=algorithm, device="cpu")
    taken = Taken(ready, operands)
    for _ in range(2):  # what was let through before changes nothing
        with pytest.raises(BadInput, match=said):
            ready(**taken.but(name, change))
        ready(**taken.given)


def test_a_workspace_that_is_too_small_is_refused(operands: tuple[torch.Tensor, ...]) -> None:
    ready = cw.plan(TEXT, algorithm="reference/gemm", device="cpu")
    taken = Taken(ready, operands)
    with pytest.raises(BadInput, match=r"`workspace` must have [\d,]+ bytes on cpu, got [\d,]+ on cpu"):
        ready(**taken.but("workspace", lambda scratch: scratch[1:]))


def test_a_weight_that_lies_otherwise_is_packed_as_the_problem_says() -> None:
    x, w = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last), torch.randn(6, 4, 3, 3)
    for algorithm in "torch/default", "reference/gemm", "torch/onednn":
        ready = cw.plan("mb2ic4ih8oc6kh3ph1 tag:nhwc", algorithm=algorithm, device="cpu")
        torch.testing.assert_close(ready(x, ready.prepare(w)), F.conv2d(x, w, padding=1))
        with pytest.raises(BadInput, match=r"`w` must have the sizes \(6, 4, 3, 3\), as the plan's"):
            ready.prepare(w[:5])


def test_a_weight_that_another_plan_packed_is_taken_and_one_that_nobody_packed_is_not(
    operands: tuple[torch.Tensor, ...],
) -> None:
    x, w, bias, _ = operands
    packing, other = (cw.plan(TEXT, algorithm="reference/gemm", device="cpu") for _ in range(2))
    torch.testing.assert_close(other(x, packing.prepare(w), bias), F.conv2d(x, w, bias, padding=1))
    with pytest.raises(BadInput, match=r"`w` must have the sizes .*, as `prepare` packs it, got"):
        cw.plan(TEXT, algorithm="reference/gemm", device="cpu")(x, w, bias)


def test_what_takes_tensors_only_says_so() -> None:
    with pytest.raises(Refused, match="torch/default takes tensors, not addresses; plan"):
        cw.plan(TEXT, algorithm="torch/default", device="cpu").launch(1, 2, 3, 4)
    with pytest.raises(Refused, match=r"nothing that is allowed for .* runs on addresses"):
        cw.plan(TEXT, device="cpu", launchable=True)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"problem": 3}, "plan takes a problem or its text, got 3"),
        ({"problem": TEXT, "device": "h200"}, "a plan runs where it is made, and NVIDIA H200 is not in this machine"),
        ({"problem": TEXT, "device": "cpu", "algorithm": 3}, "`algorithm` must be an algorithm's id, .* got 3"),
        ({"problem": TEXT, "device": "cpu", "algorithm": "nope/x"}, "no algorithm here is called 'nope/x'"),
    ],
)
def test_bad_input_is_one_sentence(what: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        cw.plan(**what)


@pytest.mark.parametrize("algorithm", ["torch/default", "unfuse(reference/gemm)"])
def test_rarer_operands_are_given_by_name(algorithm: str) -> None:
    x, dy, z = torch.randn(2, 4, 8, 8), torch.randn(2, 6, 8, 8), torch.randn(2, 6, 8, 8)
    dw, db = torch.ones(6, 4, 3, 3), torch.ones(6)
    text = "mb2ic4ih8oc6kh3ph1 dir:backward_weight ep:bias+relu+accumulate"
    ready = cw.plan(text, algorithm=algorithm, device="cpu")
    assert ready(x, dy, z=z, db=db, out=dw) is dw
    w, b = torch.zeros(6, 4, 3, 3, requires_grad=True), torch.zeros(6, requires_grad=True)
    F.conv2d(x, w, b, padding=1).backward(dy * (z > 0))
    assert w.grad is not None
    assert b.grad is not None
    torch.testing.assert_close(dw, w.grad + 1, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(db, b.grad + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("ep", "given", "said"),
    [
        ("scale", {}, "takes `scale` beside its two operands, got none"),
        ("bias", {"scale": torch.ones(6)}, "takes `bias` beside its two operands, got `scale`"),
        ("scale+bias", {"scale": torch.ones(6)}, "takes `bias`, `scale` beside its two operands, got `scale`"),
        ("scale", {"scale": torch.ones(6), "bias": torch.ones(6)}, "takes `scale` .*, got `bias`, `scale`"),
        ("accumulate", {}, "a problem that accumulates adds to `out`, which is missing"),
    ],
)
def test_operands_that_do_not_belong_are_said(ep: str, given: dict[str, torch.Tensor], said: str) -> None:
    ready = cw.plan(f"mb2ic4ih8oc6kh3ph1 ep:{ep}", algorithm="torch/default", device="cpu")
    with pytest.raises(BadInput, match=said):
        ready(torch.ones(2, 4, 8, 8), torch.ones(6, 4, 3, 3), **given)


@pytest.mark.parametrize("algorithm", ["torch/default", "reference/gemm", "relayout(nhwc, reference/gemm)"])
def test_the_parameters_of_a_layer_serve_and_no_gradient_is_followed(algorithm: str) -> None:
    layer, x = torch.nn.Conv2d(4, 6, 3, padding=1), torch.randn(2, 4, 8, 8)
    ready = cw.plan(TEXT, algorithm=algorithm, device="cpu")
    for given in (x, x.clone().requires_grad_()):
        y = ready(given, ready.prepare(layer.weight), layer.bias)
        assert not y.requires_grad
        torch.testing.assert_close(y, layer(x).detach())


def test_what_has_a_gradient_serves_as_an_operand() -> None:
    x, w, dy = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3, requires_grad=True), torch.randn(2, 6, 8, 8)
    y = F.conv2d(x, w, padding=1).relu()
    ready = cw.plan("mb2ic4ih8oc6kh3ph1 dir:backward_data ep:relu", algorithm="unfuse(torch/default)", device="cpu")
    assert not ready(dy, ready.prepare(w), z=y).requires_grad
