"""Tests that run in a process of their own, since Triton decides at import whether it interprets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def passes_in_the_interpreter(name: str) -> None:
    """Run one of the files of ``triton_interpreted``."""
    tests = Path(__file__).parent
    inner = tests / "triton_interpreted" / name
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(inner)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, cwd=tests.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
