"""Tests that run in a process of their own, since Triton decides at import whether it interprets."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

_TESTS = Path(__file__).parent
_ROOT = _TESTS.parents[1]

# Imports once what takes seconds, and has a process for each file, which writes to another and ends with pytest's code.
_FORKS = """
import gc, importlib, os, pkgutil, sys
import hypothesis, pytest, torch, triton
import convwright.eager.functional, convwright.tuning.trials.trial
from convwright.backends import triton as kernels
for found in pkgutil.walk_packages(kernels.__path__, kernels.__name__ + "."):
    importlib.import_module(found.name)
torch.testing.assert_close(torch.ones(1), torch.ones(1))  # it imports what it compares with
gc.freeze()  # pytest collects garbage several times, and would look at all of this each time
for line in sys.stdin:
    inner, told = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        code = pytest.main(["-q", "-p", "no:cacheprovider", inner])
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _forking() -> subprocess.Popen[str]:
    """It ends when this process does, which closes what it reads from."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command, pipe = [sys.executable, "-c", _FORKS], subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=_ROOT, stdin=pipe, stdout=pipe, text=True)


def passes_in_the_interpreter(name: str) -> None:
    """Run one of the files of ``triton_interpreted``."""
    process = _forking()
    assert process.stdin is not None
    assert process.stdout is not None
    with NamedTemporaryFile("r", suffix=".txt") as told:
        process.stdin.write(f"{_TESTS / 'triton_interpreted' / name}\t{told.name}\n")
        process.stdin.flush()
        code = process.stdout.readline()
        assert code == "0\n", told.read()[-6000:]
