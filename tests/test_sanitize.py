"""The script that compute-sanitizer watches runs to its end, and tells what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "sanitize.py"


@pytest.mark.slow
def test_every_candidate_that_is_run_is_right() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--device", "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert f"{len(lines)} runs, 0 wrong" in last
    ran = {line.split()[1] for line in lines}
    assert {"torch/default", "reference/gemm", "reference/direct"} <= ran
    assert any("(" in name for name in ran), "nothing that is rewritten"


def test_a_wrong_result_is_told() -> None:
    spec = spec_from_file_location("sanitize", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: Any = module_from_spec(spec)
    spec.loader.exec_module(script)
    report = script.Report()
    report.tell("right", torch.ones(3), torch.ones(3))
    report.tell("wrong", torch.ones(3), torch.full((3,), 1.1))
    report.tell("no number", torch.full((3,), torch.nan), torch.ones(3))
    assert (report.ran, report.wrong) == (3, 2)
