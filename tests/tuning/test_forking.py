"""A child that was forked off goes on: nothing that its parent's threads were at holds it up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

import convwright as cw
from convwright.backends.cudnn import library
from convwright.core.once import once
from convwright.core.policy import Policy
from convwright.eager import enable
from convwright.eager.asking import ambient
from convwright.eager.calls.call import CONV2D
from convwright.measuring.disturbances import waiting
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.session import Session, session
from convwright.tuning.workers import WorkerPool
from forked import PATIENCE_S, in_child
from tuning.fatal import kernel, written
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Way

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

GEMM = "reference/gemm"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """PyTorch's own convolution hangs in a child whose parent has computed with several; a data loader's workers, too,
    have one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextmanager
def held(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """Inside, another thread has the lock."""
    has, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def tensors() -> tuple[Tensor, Tensor]:
    torch.manual_seed(7)
    return torch.randn(2, 4, 16, 16), torch.randn(6, 4, 3, 3)


def used() -> str:
    """What is right with calls, known and new ones, searches and contexts."""
    x, w = tensors()
    for algorithm in (None, GEMM, "reference/direct"):
        assert_close(cw.conv2d(x, w, algorithm=algorithm), F.conv2d(x, w), rtol=1e-4, atol=1e-4)
    new = torch.randn(2, 5, 12, 12), torch.randn(3, 5, 3, 3, requires_grad=True)
    with cw.algorithms(forward=GEMM), cw.enabled():
        F.conv2d(*new).sum().backward()
    found = cw.find(*tensors(), mode="quick", budget_us=2e6)  # a busy machine may take all of a small budget
    assert found.choice is not None
    return "all right"


def test_after_it_was_used_in_the_parent() -> None:
    assert used() == "all right"
    assert in_child(used) == "all right"
    assert in_child(lambda: in_child(used)) == "all right"
    assert used() == "all right"


def lock_of(name: str) -> AbstractContextManager[Any]:
    locks = {
        "session": lambda: session()._measuring.setdefault("cpu", threading.RLock()),
        "compile queue": lambda: compile_queue()._changed,
        "contexts": lambda: ambient.contexts._lock,
        "enable": lambda: enable._lock,
        "waiting": lambda: waiting._reading,
    }
    lock: AbstractContextManager[Any] = locks[name]()
    return lock


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("name", ["session", "compile queue", "contexts", "enable", "waiting"])
def test_while_another_thread_holds_a_lock(name: str) -> None:
    used()
    with held(lock_of(name)):
        assert in_child(used) == "all right"
    assert used() == "all right"


def test_while_another_thread_makes_a_handle() -> None:
    with held(library._making):
        assert in_child(lambda: library._making.acquire(timeout=1)) == "True"


def test_while_another_thread_computes_what_is_kept() -> None:
    computing, done = threading.Event(), threading.Event()

    class Slow:
        @once
        def value(self) -> int:
            computing.set()
            done.wait(PATIENCE_S)
            return 3

    one, other = Slow(), Slow()
    thread = threading.Thread(target=lambda: one.value)
    thread.start()
    computing.wait()
    assert in_child(lambda: done.set() or other.value) == "3"
    done.set()
    thread.join()
    assert one.value == 3


def test_a_store_is_shared_by_parent_and_child(tmp_path: Path) -> None:
    path = tmp_path / "findings.sqlite"
    with Store.open(path) as store:
        cw.find(*tensors(), mode="quick", budget_us=2e6, store=store)

        def search() -> int:
            known = cw.find(*tensors(), mode="quick", budget_us=2e6, store=store)
            cw.find(torch.randn(1, 3, 9, 9), torch.randn(2, 3, 3, 3), mode="quick", budget_us=2e6, store=store)
            return sum(verdict.finding.remembered for verdict in known.verdicts)

        assert int(in_child(search)) > 0
        assert len(store.problems()) >= 2


_IMPORTING = """
import os, sys, threading
import convwright
from forked import in_child

started = threading.Event()
sys.path.insert(0, sys.argv[1])
threading.Thread(target=__import__, args=("slow",)).start()
while "slow" not in sys.modules:
    pass
print(in_child(lambda: __import__("slow").DONE))
"""


def test_while_another_thread_imports(tmp_path: Path) -> None:
    """A child could never import what its parent's thread had begun to."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.3)\nDONE = 'all of it'\n")
    command = [sys.executable, "-c", _IMPORTING, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("all of it\n", 0), done.stderr


@pytest.mark.slow
def test_while_calls_are_made_in_other_threads() -> None:
    """Whatever they are at, but for PyTorch's first products: while a thread is at its first ``torch.bmm``, PyTorch's
    own convolution hangs in a child in one of eighteen cases."""
    assert used() == "all right"
    x, w = tensors()
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            with cw.algorithms(forward=GEMM):
                cw.conv2d(x, w)
            cw.find(x, w, mode="heuristic")
            fresh = torch.randn(1, 4, 5 + time.monotonic_ns() % 50, 7)
            cw.conv2d(fresh, w, algorithm="reference/direct")

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            said = in_child(used)
            assert said == "all right", said
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_what_the_parent_is_compiling_is_asked_for_anew(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.compiled = {"kernel": Way(500.0)}
    blocked, at_it = threading.Event(), threading.Event()

    def compiler(id_: str) -> None:
        at_it.set()
        blocked.wait(PATIENCE_S)

    made.compiler = compiler
    here = Session(Mode.QUICK, Store.open(None))
    monkeypatch.setattr("convwright.tuning.session.session", lru_cache(lambda: here))
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.is_torch
    assert at_it.wait(PATIENCE_S)

    def child() -> str:
        made.compiler = lambda id_: None
        assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.is_torch
        compile_queue().wait_for_all()
        return here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id

    try:
        assert in_child(child) == "compiled/kernel"
    finally:
        blocked.set()
        compile_queue().wait_for_all()
    assert here.answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "compiled/kernel"


@pytest.mark.slow
def test_compilers_stay_those_of_the_parent(fatal: None, tmp_path: Path) -> None:
    asked = WorkerPool(1)
    asked.ask("compile", kernel(tmp_path / "before"), CPU)

    def child() -> str:
        files = len(os.listdir("/proc/self/fd"))
        said = f"{asked.idle} {asked.ask('compile', kernel(tmp_path / 'child'), CPU)}"
        asked._idle.pop().end()
        return f"{said} {len(os.listdir('/proc/self/fd')) - files}"

    with held(asked._places):
        assert in_child(child) == "() None 0"
    asked.ask("compile", kernel(tmp_path / "after"), CPU)
    processes = [written(tmp_path / name)[0] for name in ("before", "child", "after")]
    assert processes[0] == processes[2] != processes[1]


@pytest.mark.slow
def test_slots_of_a_gpu_are_dropped_and_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = tensors()
    cw.conv2d(x, w, algorithm=GEMM)
    count = len(CONV2D.slots.latest)
    assert count > 0
    # A CUDA build of PyTorch may have been asked for a GPU by another test.
    monkeypatch.setattr("convwright.torch_api.cuda_lost", lambda: False)
    assert in_child(lambda: len(CONV2D.slots.latest)) == str(count)
    monkeypatch.setattr("convwright.torch_api.cuda_lost", lambda: True)
    assert in_child(lambda: len(CONV2D.slots.latest)) == "0"


class Convolved(Dataset[Tensor]):
    """Items that are computed where they are asked for."""

    def __init__(self) -> None:
        self.x, self.w = tensors()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return cw.conv2d(self.x * (index + 1), self.w, algorithm=GEMM if index % 2 else None)


def test_the_workers_of_a_data_loader() -> None:
    items = Convolved()
    expected = [items[index] for index in range(len(items))]
    loader = DataLoader(items, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=PATIENCE_S)
    with held(session()._measuring.setdefault("cpu", threading.RLock())):
        assert_close(list(loader), expected, rtol=1e-4, atol=1e-4)
