"""Peak extra memory on a CPU; on a GPU it is tested in tests/gpu."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from convwright.measuring import memory
from convwright.measuring.memory import peak_extra_bytes, settle_heap

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process held at most")


@linux
@pytest.mark.parametrize("mib", [1, 16, 64])
def test_a_result_counts(mib: int) -> None:
    found = peak_extra_bytes(lambda: torch.ones(mib * MIB // 4), "cpu")
    assert found == pytest.approx(mib * MIB, rel=0.1, abs=MIB // 4)


@linux
def test_what_is_freed_before_the_end_counts_at_its_highest() -> None:
    def call() -> torch.Tensor:
        first = torch.ones(4 * MIB)  # 16 MiB
        second = first + 1
        del first
        return second[:1].clone()

    assert peak_extra_bytes(call, "cpu") == pytest.approx(32 * MIB, rel=0.1)


@linux
def test_what_a_thread_freed_before_is_not_taken_for_nothing() -> None:
    """A thread's heap keeps tens of MiB at its end, whatever is trimmed, and gives them out again."""
    settle_heap()
    with ThreadPoolExecutor(1) as threads:
        for _ in range(3):
            found = threads.submit(peak_extra_bytes, lambda: torch.ones(4 * MIB), "cpu").result()
            assert found == pytest.approx(16 * MIB, rel=0.1)


@linux
def test_the_end_of_a_heap_that_cannot_be_given_back_is_not_taken_for_nothing() -> None:
    """As where another allocator has moved the program's break."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, (ctypes.c_ssize_t,)
    peak_extra_bytes(lambda: None, "cpu")  # from here on blocks of 20 MiB come from the heap
    block = libc.malloc(20 * MIB)
    ctypes.memset(block, 1, 20 * MIB)
    libc.sbrk(4096)
    libc.free(block)
    assert peak_extra_bytes(lambda: torch.ones(4 * MIB), "cpu") == pytest.approx(16 * MIB, rel=0.1)


@linux
def test_what_was_there_before_and_what_stays_for_good_do_not_count() -> None:
    kept: list[torch.Tensor] = [torch.ones(16 * MIB)]

    def call() -> None:
        if len(kept) == 1:
            kept.append(torch.ones(16 * MIB))

    found = peak_extra_bytes(call, "cpu")
    assert found is not None
    assert found < MIB


def test_what_cannot_be_known_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert peak_extra_bytes(lambda: None, "meta") is None
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "nowhere" / "clear_refs")
    assert peak_extra_bytes(lambda: None, "cpu") is None


_MAPPED = """
import ctypes, sys, torch
from convwright.measuring.memory import settle_heap

class Info(ctypes.Structure):
    _fields_ = [(f"f{i}", ctypes.c_size_t) for i in range(10)]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
if sys.argv[1] == "settled":
    settle_heap()
before = mallinfo().f3  # blocks that were mapped each for itself
block = torch.empty(20_000_000, dtype=torch.uint8)
print(mallinfo().f3 - before)
"""


@pytest.mark.first_cases(1)
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc tells how it holds its blocks")
@pytest.mark.parametrize(("state", "mapped"), [("fresh", "1"), ("settled", "0")])
def test_behind_a_large_block_the_heap_keeps_others(state: str, mapped: str) -> None:
    said = subprocess.run([sys.executable, "-c", _MAPPED, state], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == mapped
