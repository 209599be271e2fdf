"""Faults on a live GPU: no memory, forks, many threads, and the end of a process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright import flags
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.trials.quick_timing import QuickTimings
from convwright.tuning.trials.search_input import NO_HOOKS
from convwright.tuning.trials.trial import Bench
from eager.prefer import prefer
from ended import Ended
from forked import in_child

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,  # some take nearly all memory of the GPU
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

# The workspaces of these are larger than what is left free, in which their operands and results have room.
WINOGRAD, LAYER = "cudnn/winograd-nonfused", ((32, 64, 56, 56), (64, 64, 3, 3))
FFT, WIDE = "cudnn/fft-tiling", "ic128ih16oc256kh7sh2ph3"
LEFT_BYTES = 96 << 20
THREADS, CALLS = 16, 625


@pytest.fixture(autouse=True)
def _fp32() -> Iterator[None]:
    """PyTorch's own call in TF32 would need room for copies in another layout."""
    with flags.tf32(False):
        yield


class Memory:
    """All memory of the GPU but a little can be taken, and given back."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []

    def take(self) -> None:
        self.give()
        free, _ = torch.cuda.mem_get_info()
        self._held.append(torch.empty(free - LEFT_BYTES, dtype=torch.uint8, device="cuda"))

    def give(self) -> None:
        self._held.clear()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory()
    yield made
    made.give()


def layer() -> tuple[Tensor, Tensor, Tensor]:
    """Input and weight, and on the host the result."""
    torch.manual_seed(2)
    x, w = (torch.randn(shape, device="cuda") for shape in LAYER)
    return x, w, F.conv2d(x, w, padding=1).cpu()


def check(y: Tensor, expected: Tensor) -> None:
    """On the host: the comparison, too, needs memory."""
    assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.alone
def test_without_memory_another_serves_until_there_is(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, WINOGRAD)
    x, w, expected = layer()
    check(cw.conv2d(x, w, padding=1), expected)
    memory.take()
    with pytest.warns(cw.MemoryWarning, match=rf"^torch/default\S* serves: {WINOGRAD} ran out of memory: it needs"):
        check(cw.conv2d(x, w, padding=1), expected)
    choice = cw.last_choice()
    assert choice is not None
    assert choice.is_torch
    assert "bytes are free on cuda:0" in str(choice.note)
    for _ in range(20):
        y = cw.conv2d(x, w, padding=1)
    check(y, expected)
    del y
    memory.give()
    for _ in range(64):
        y = cw.conv2d(x, w, padding=1)
    check(y, expected)
    choice = cw.last_choice()
    assert choice is not None
    assert (choice.candidate.id, choice.note) == (WINOGRAD, None)


def test_what_is_asked_for_by_name_is_one_error(memory: Memory) -> None:
    x, w, expected = layer()
    ready = cw.plan(cw.problem(x, w, padding=1), algorithm=WINOGRAD, device="cuda")
    assert ready.workspace_bytes > LEFT_BYTES
    packed = ready.prepare(w)
    check(cw.conv2d(x, w, padding=1, algorithm=WINOGRAD), expected)
    memory.take()
    needed = f"{ready.workspace_bytes:,} bytes of workspace"
    said = rf"^{WINOGRAD} ran out of memory: it needs {needed}, and [\d,]+ bytes are free on cuda:0$"
    with pytest.raises(torch.OutOfMemoryError, match=said):
        cw.conv2d(x, w, padding=1, algorithm=WINOGRAD)
    with pytest.raises(cw.OutOfMemory, match=said):
        ready(x, packed)
    check(cw.conv2d(x, w, padding=1), expected)


def test_a_search_says_it_and_goes_on(memory: Memory) -> None:
    device, problem = device_facts("cuda"), ConvProblem.parse(WIDE)
    policy = Policy(max_workspace_bytes=1 << 30)
    cw.find(problem, device="cuda", mode="quick", policy=policy)  # loads what a process loads once
    fft = next(c for c in listing.candidates(listing.direct(problem, device, policy)) if c.id == FFT)
    assert (fft.workspace_bytes or 0) > LEFT_BYTES
    memory.take()
    looks = QuickTimings(Bench(problem, device, Mode.QUICK, seed=1), Budget(inf), Policy(), NO_HOOKS.trying)
    assert looks.at(fft) is None
    assert looks.failed[fft].note == f"out of memory for its workspace of {fft.workspace_bytes:,} bytes"
    del looks
    found = cw.find(ConvProblem.parse(f"mb2{WIDE}"), device="cuda", mode="quick", policy=policy)
    assert found.verdicts
    assert not [v.reason for v in found.verdicts if "memory" in str(v.finding.failure)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_a_forked_child_the_error_is_pytorchs_own() -> None:
    x, w = torch.randn(2, 8, 16, 16, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
    for algorithm in (None, "cudnn/gemm") * 3:
        cw.conv2d(x, w, algorithm=algorithm)
    own, said = in_child(lambda: F.conv2d(x, w)), in_child(lambda: cw.conv2d(x, w))
    assert "still there" not in own
    assert said.partition(":")[0] == own.partition(":")[0]
    assert in_child(lambda: cw.conv2d(x, w, algorithm="cudnn/gemm")) == (
        "Refused: cudnn/gemm cannot serve this call, which needs PyTorch's own functions, since this process was "
        "forked off one that used CUDA"
    )

    def on_the_cpu() -> bool:
        torch.set_num_threads(1)
        near = torch.ones(2, 4, 9, 9), torch.ones(4, 4, 3, 3)
        return torch.allclose(cw.conv2d(*near, algorithm="reference/gemm"), F.conv2d(*near))

    assert in_child(on_the_cpu) == "True"


def test_sixteen_threads_with_streams_of_their_own() -> None:
    names = (None, "cudnn/implicit-precomp-gemm", "cudnn/fft", "cudnn/engine-0")
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    made = [(torch.randn(2, 16, 14, 14, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")) for _ in streams]
    with torch.no_grad():
        expected = [F.conv2d(x.double(), w.double(), padding=1) for x, w in made]
    torch.cuda.synchronize()
    errors: list[BaseException] = []

    def work(number: int, calls: int) -> None:
        x, w = made[number]
        try:
            with torch.no_grad(), torch.cuda.stream(streams[number]):
                for call in range(calls):
                    y = cw.conv2d(x, w, padding=1, algorithm=names[(number + call) % len(names)])
                    if call % 25 < len(names):
                        assert_close(y.double(), expected[number], rtol=1e-2, atol=2e-2)
        except BaseException as error:
            errors.append(error)

    def together(calls: int) -> int:
        threads = [threading.Thread(target=work, args=(number, calls)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        gc.collect()
        assert not errors, errors[0]
        return torch.cuda.memory_allocated()

    before = together(len(names))
    assert together(CALLS) == before


def test_threads_on_one_stream_do_not_share_what_they_write_to() -> None:
    """Between two launches of one plan other threads launch theirs."""
    name = "relayout(nhwc, cudnn/implicit-precomp-gemm)"
    made = [(torch.randn(2, 16, 14, 14, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")) for _ in range(8)]
    with torch.no_grad():
        expected = [F.conv2d(x.double(), w.double(), padding=1) for x, w in made]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        x, w = made[number]
        try:
            with torch.no_grad():
                for _ in range(200):
                    y = cw.conv2d(x, w, padding=1, algorithm=name)
                    assert_close(y.double(), expected[number], rtol=1e-2, atol=2e-2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


SCRIPT = """
import sys, threading
import torch, convwright as cw
x, w = torch.randn(2, 8, 16, 16, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
with torch.no_grad():
    for name in (None, "cudnn/gemm", "cudnn/fft", "cudnn/engine-0"):
        cw.conv2d(x, w, padding=1, algorithm=name)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = cw.conv2d(x, w, padding=1, algorithm="cudnn/gemm")
    graph.replay()
{more}
"""
MORE = {
    # Half precision, channels last: kernels are compiled beside the calls, and the process ends meanwhile.
    "while kernels are compiled": """
last = torch.channels_last
half = [tensor.half().to(memory_format=last) for tensor in (torch.randn(3, 104, 21, 21), torch.randn(104, 104, 3, 3))]
x, w = (tensor.cuda() for tensor in half)
for _ in range(3):
    cw.conv2d(x, w, padding=1)
""",
    "beside a daemon that has made calls": """
made = threading.Event()
def call():
    with torch.cuda.stream(torch.cuda.Stream()):
        cw.conv2d(x, w, padding=1, algorithm="cudnn/fft")
    made.set()
    threading.Event().wait()
threading.Thread(target=call, daemon=True).start()
made.wait()
""",
}


@pytest.mark.parametrize("how", MORE)
def test_a_process_ends_quietly(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    Ended(SCRIPT.format(more=MORE[how]), tmp_path).check()
