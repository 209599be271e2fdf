"""Choices that serve eager calls on a GPU, before, inside and after a capture."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright import flags
from convwright.eager.calls.call import forget, stand_ins
from convwright.eager.decision import choices_for
from convwright.eager.host_costs import measured
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


def test_host_costs_are_those_of_a_gpu() -> None:
    """A launch of ours costs the host less than PyTorch's own call, a further one less than the first."""
    costs = measured(device_facts("cuda:0"))
    assert 0.2 < costs.next_launch_us < costs.launch_us < costs.own_us < 1000
    assert 0.5 < costs.operator_us < costs.own_us
    assert 1.0 < costs.engine_us < 1000
    assert 1.0 < costs.node_us < 1000


def test_each_question_has_an_answer_for_eager_and_for_captured_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where launching costs the host much, eager calls stay with PyTorch's own, and captured ones do not."""
    make_launches_dear(monkeypatch)
    x, w = torch.randn(8, 50, 128, 128, device="cuda"), torch.randn(1, 50, 3, 3, device="cuda")
    with torch.no_grad(), flags.tf32(False):
        cw.find(x, w, padding=1, mode="quick", device="cuda:0", policy=cw.Policy())
        forget()
        for _ in range(3):
            cw.conv2d(x, w, padding=1)
        eager = cw.last_choice()
        answer = choices_for(cw.problem(x, w, padding=1), device_facts("cuda:0"), cw.Policy(), None)
        assert eager is not None
        assert eager.is_torch
        assert not answer.captured.is_torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = cw.conv2d(x, w, padding=1)
        y.zero_()
        graph.replay()
        assert_close(y, F.conv2d(x.double(), w.double(), padding=1).float(), rtol=1e-4, atol=1e-4)


def test_calls_that_need_no_look_are_captured_with_what_serves_there(monkeypatch: pytest.MonkeyPatch) -> None:
    make_launches_dear(monkeypatch)
    x, w = torch.randn(8, 50, 128, 128, device="cuda"), torch.randn(1, 50, 3, 3, device="cuda")
    with torch.no_grad(), flags.tf32(False), cw.enabled():
        cw.find(x, w, padding=1, mode="quick", device="cuda:0", policy=cw.Policy())
        forget()
        slots = stand_ins()[1].slots
        for _ in range(100):
            F.conv2d(x, w, None, 1, 1)
        assert slots.skip_lookup[id(w)]
        (slot,) = slots.latest[id(w)]
        in_graph, ran = slot.in_graph, list[str]()
        slot.in_graph = lambda *operands: (ran.append("captured"), in_graph(*operands))[1]
        for _ in range(3):  # of which chance may let one be looked at
            F.conv2d(x, w, None, 1, 1)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = F.conv2d(x, w, None, 1, 1)
        y.zero_()
        graph.replay()
    assert ran == ["captured"] * 3
    assert_close(y, F.conv2d(x.double(), w.double(), padding=1).float(), rtol=1e-4, atol=1e-4)


def make_launches_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = replace(measured(device_facts("cuda:0")), launch_us=1e6, engine_us=1e6)
    monkeypatch.setattr("convwright.eager.host_costs.host_costs", lambda device: dear)


@pytest.mark.parametrize("calls_before", [3, 60])
def test_what_is_captured_before_or_after_is_right(calls_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(Mode.QUICK, Store.open(None))
    for module in ("convwright.eager.decision", "convwright.eager.scheduler", "convwright.tuning.session"):
        monkeypatch.setattr(f"{module}.session", lru_cache(lambda: made))
    forget()
    x = torch.randn(3, 88, 21, 21, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(88, 88, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    bias = torch.randn(88, device="cuda", dtype=torch.float16)
    exact = F.conv2d(x.double(), w.double(), bias.double(), padding=1).relu()
    with torch.no_grad():
        for _ in range(calls_before):
            y = cw.conv2d(x, w, bias, padding=1, activation="relu")
            torch.cuda.synchronize()
        assert_close(y.double(), exact, rtol=1e-2, atol=1e-1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = cw.conv2d(x, w, bias, padding=1, activation="relu")
    y.zero_()
    graph.replay()
    assert_close(y.double(), exact, rtol=1e-2, atol=1e-1)


# PyTorch's libraries are initialised before the capture, as they have to be; convwright meets its first call inside.
_CAPTURED_FIRST = """
import torch
from torch.nn import functional as F
import convwright as cw

trains = {trains}
x = torch.randn(2, 16, 20, 20, device="cuda", requires_grad=trains)
w = torch.randn(24, 16, 3, 3, device="cuda", requires_grad=trains)

def step(conv):
    y = conv(x, w, padding=1)
    return (y, *torch.autograd.grad(y, (x, w), y.detach())) if trains else (y,)

side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.set_grad_enabled(trains), torch.cuda.stream(side):
    expected = step(F.conv2d)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.set_grad_enabled(trains), torch.cuda.graph(graph):
    outputs = step(cw.conv2d)
with torch.no_grad():
    for output in outputs:
        output.zero_()
graph.replay()
for output, exact in zip(outputs, expected, strict=True):
    torch.testing.assert_close(output, exact, rtol=1e-3, atol=1e-2)
print("captured")
"""


@pytest.mark.parametrize("trains", [False, True])
def test_the_first_call_of_a_process_may_be_captured(trains: bool) -> None:
    """Nothing is measured inside, host costs neither."""
    program = _CAPTURED_FIRST.replace("{trains}", str(trains))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "captured", done.stderr[-2000:]


def test_a_workspace_is_given_back_after_the_call() -> None:
    """It adds to a model's peak only where the peak is in that call."""
    x, w = torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    with torch.no_grad():
        expected = cw.conv2d(x, w, padding=1, algorithm="reference/gemm")
        torch.cuda.synchronize()
        del expected
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        y = cw.conv2d(x, w, padding=1, algorithm="reference/gemm")
    assert torch.cuda.max_memory_allocated() - before > 9 * x.nbytes, "columns of 9 taps were laid out"
    assert torch.cuda.memory_allocated() - before <= 2 * y.nbytes
    assert_close(y, F.conv2d(x.double(), w.double(), padding=1).float(), rtol=1e-4, atol=1e-3)
