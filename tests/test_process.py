"""Processes as others recognise them: alive, gone, replaced by another of the same number, or out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from convwright import process
from convwright.process import Process, this_process


@pytest.fixture
def without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A system that has no /proc, such as macOS."""
    monkeypatch.setattr(process, "_PROC", tmp_path)
    process._described.cache_clear()
    yield
    process._described.cache_clear()


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def of(child: subprocess.Popen[bytes]) -> Process:
    return replace(this_process(), pid=child.pid, started=process._started(child.pid))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_this_process_is_alive_and_a_forked_child_is_another() -> None:
    me = this_process()
    assert me.is_alive() is True
    assert me.pid == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if this_process().pid == os.getpid() and me.is_alive() and this_process() != me else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_another_process_is_alive_until_it_is_killed_even_before_its_parent_notices() -> None:
    child = sleeping()
    other = of(child)
    assert other.started is not None
    assert other.is_alive() is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but its number is still taken
    assert other.is_alive() is False
    child.wait()
    assert other.is_alive() is False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_a_number_given_again_is_another_process() -> None:
    me = this_process()
    assert me.started is not None
    assert replace(me, started=str(int(me.started) - 1)).is_alive() is False


def test_a_reboot_ends_all_and_other_machines_cannot_be_asked() -> None:
    me = this_process()
    assert replace(me, boot="an earlier one").is_alive() is False
    assert replace(me, host="elsewhere").is_alive() is None
    assert replace(me, host="elsewhere", boot="an earlier one").is_alive() is None


@pytest.mark.usefixtures("without_proc")
def test_without_proc_a_free_number_is_a_dead_process_and_a_taken_one_may_be_either() -> None:
    me = this_process()
    assert (me.boot, me.started) == (None, None)
    assert me.is_alive() is True
    child = sleeping()
    other = of(child)
    assert other.is_alive() is None
    child.kill()
    child.wait()
    assert other.is_alive() is False


@pytest.mark.usefixtures("without_proc")
def test_windows_is_never_asked_by_a_signal_which_would_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill"))
    assert replace(this_process(), pid=1 << 22).is_alive() is None


def test_a_name_may_hold_spaces_and_parentheses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "_PROC", tmp_path)
    for pid, state in ((7, "S"), (8, "Z")):
        (tmp_path / str(pid)).mkdir()
        numbers = " ".join(str(field) for field in range(4, 53))
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) S (b) {state} {numbers}\n")
    assert process._started(7) == "22"  # proc(5): the start is field 22
    assert process._started(8) is None
