"""Sixteen threads at once: every result is right, and nothing is left of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.eager.running import runner
from convwright.settings import BUDGETS_US, Mode, settings
from eager.prefer import GEMM, prefer

THREADS, CALLS = 16, 150
# A tenth of what their results take: 3 × 16 × 150 of them are made.
MOST_BYTES = 3 * THREADS * CALLS * 2 * 6 * 12 * 12 * 4 // 10
TASKS = Path("/proc/self/task")


def together(work: Callable[[int], None]) -> None:
    """``work`` in all threads, begun at once; the first error of any is raised."""
    barrier, errors = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def tensors(number: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(number)
    shapes = (1 + number % 3, 4, 12, 12), (6, 4, 3, 3), (6,)
    return tuple(torch.randn(shape, generator=made) for shape in shapes)  # type: ignore[return-value]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns far more often than they do by themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("asked", [None, GEMM, "reference/direct"])
def test_results_are_right(asked: str | None, switching: None) -> None:
    def work(number: int) -> None:
        x, w, b = tensors(number)
        expected = F.conv2d(x, w, b, padding=1).relu()
        for _ in range(CALLS):
            y = cw.conv2d(x, w, b, padding=1, activation="relu", algorithm=asked)
            assert_close(y, expected, rtol=1e-4, atol=1e-4)

    together(work)


def test_one_weight_in_all_threads_with_shapes_of_their_own(switching: None) -> None:
    _, w, b = tensors(0)

    def work(number: int) -> None:
        x = torch.randn(1, 4, 6 + number, 9)
        expected = F.conv2d(x, w, b)
        for call in range(CALLS):
            algorithm = (None, GEMM, "torch/default")[call % 3]
            assert_close(cw.conv2d(x, w, b, algorithm=algorithm), expected, rtol=1e-4, atol=1e-4)

    together(work)


def test_gradients_are_right(switching: None) -> None:
    def work(number: int) -> None:
        x, w, _ = (tensor.double().requires_grad_() for tensor in tensors(number))
        expected = torch.autograd.grad(F.conv2d(x, w).square().sum(), (x, w))
        for _ in range(CALLS // 5):
            with cw.algorithms(forward=GEMM, backward_data=GEMM, backward_weight=GEMM):
                assert_close(torch.autograd.grad(cw.conv2d(x, w).square().sum(), (x, w)), expected)

    together(work)


def test_all_may_meet_new_problems_at_once_and_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    monkeypatch.setitem(BUDGETS_US, Mode.QUICK, 2e4)
    settings.cache_clear()

    def work(number: int) -> None:
        x, w, b = tensors(number)
        expected = F.conv2d(x, w, b)
        for _ in range(40):
            assert_close(cw.conv2d(x, w, b), expected, rtol=1e-3, atol=1e-3)

    together(work)


@pytest.mark.filterwarnings("ignore::convwright.errors.MemoryWarning")
def test_memory_that_comes_and_goes(switching: None, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    calls = count()

    def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
        def give() -> Tensor:
            if next(calls) % 3 == 0:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return torch.empty(nbytes, dtype=torch.uint8)

        return give

    monkeypatch.setattr(runner, "workspace", workspace)
    shared = tensors(0)

    def work(number: int) -> None:
        x, w, b = shared if number % 2 else tensors(number)
        expected = F.conv2d(x, w, b)
        for _ in range(CALLS):
            assert_close(cw.conv2d(x, w, b), expected, rtol=1e-4, atol=1e-4)

    together(work)
    # A slot asks until a third of its calls are refused, and then more and more rarely: some 18 times each.
    assert next(calls) > CALLS // 3


@pytest.mark.slow
@pytest.mark.skipif(not TASKS.is_dir(), reason="this system does not tell what a process holds")
def test_nothing_is_left_of_them() -> None:
    def work(number: int) -> None:
        x, w, b = tensors(number)
        for _ in range(CALLS):
            cw.conv2d(x, w, b, algorithm=GEMM)

    together(work)  # what is made once
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), resident_bytes()
    for _ in range(3):
        together(work)
    gc.collect()
    until = time.monotonic() + 5  # a thread that has ended is listed a moment longer
    while len(os.listdir(TASKS)) > threading.active_count() + torch.get_num_threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("Thread-")]
    files, nbytes = len(os.listdir("/proc/self/fd")), resident_bytes()
    assert files <= before[0]
    assert nbytes - before[1] < MOST_BYTES
