"""Without cuDNN and Triton, as on macOS, or with a cuDNN that does not serve, the rest works and says in one sentence
what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.made_library import made
from convwright.backends.cudnn import library
from convwright.backends.cudnn.graph import descriptor

ALWAYS = ["cudnnGetLastErrorString", "cudnnCreate", "cudnnSetStream"]
GRAPH = list(descriptor._SIGNATURES)
CLASSIC = list(library._CLASSIC)
SCRIPT = """
import sys
sys.modules["triton"] = None
from convwright.backends.cudnn import library
library.SONAME = sys.argv[1]
library._installed = lambda *patterns: iter(())
import torch
import convwright as cw
from convwright.cli.main import main

x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
for _ in range(3):
    assert torch.equal(cw.conv2d(x, w), torch.conv2d(x, w))
assert cw.find(x, w, mode="quick").choice is not None
found = cw.find("ic8ih9oc8kh3", device="h200", mode="heuristic")
for refusal in found.refusals:
    print(refusal.id, "|", refusal.reason)
print("engines", "|", sum("engine" in verdict.finding.candidate.id for verdict in found.verdicts))
sys.argv = ["convwright", "show-env"]
main()
"""


def said(path: str) -> tuple[dict[str, str], str]:
    """What stands beside each name, and all that was printed."""
    environment = {**os.environ, "CONVWRIGHT_STORE": "none", "COLUMNS": "300"}
    command = [sys.executable, "-c", SCRIPT, path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line.split(" | ", 1) for line in done.stdout.splitlines() if " | " in line]
    return dict(lines), done.stdout


def row(printed: str, name: str) -> str:
    """A row of ``show-env``."""
    return next(line for line in printed.splitlines() if line.startswith(name)).removeprefix(name).strip()


def test_the_rest_works_without_any() -> None:
    reasons, printed = said("libcudnn-that-is-not-there.so.9")
    assert "cuDNN 9 could not be loaded" in reasons["cudnn/graph"]
    assert "pip install" in reasons["cudnn/graph"]
    assert row(printed, "libraries: cudnn") == reasons["cudnn/graph"]
    triton = next(reason for name, reason in reasons.items() if name.startswith("triton/"))
    assert "not installed" in triton
    assert row(printed, "libraries: triton") == triton
    assert "torch 2" in printed


@pytest.mark.slow
@pytest.mark.parametrize(("version", "figures"), [(8907, "8.9.7")])
def test_with_one_that_is_too_old(version: int, figures: str, tmp_path: Path) -> None:
    path = made(tmp_path, version, [*CLASSIC, "cudnnCreate", "cudnnSetStream"])
    reasons, printed = said(str(path))
    expected = f"cuDNN {figures} at {path} is too old: 9.0.0 or newer is needed"
    assert reasons["cudnn/graph"] == row(printed, "libraries: cudnn") == expected


@pytest.mark.slow
def test_with_one_that_is_no_cudnn_9(tmp_path: Path) -> None:
    path = made(tmp_path, 90100, CLASSIC)
    reasons, _ = said(str(path))
    assert reasons["cudnn/graph"] == f"cuDNN 9.1.0 at {path} has no function cudnnGetLastErrorString"


@pytest.mark.slow
def test_with_one_that_has_no_graph_api(tmp_path: Path) -> None:
    reasons, printed = said(str(made(tmp_path, 90100, ALWAYS + CLASSIC)))
    lacks = "has no graph API (no function cudnnBackendCreateDescriptor): install a complete cuDNN 9"
    assert reasons["cudnn/graph"] == f"cuDNN 9.1.0 {lacks}"
    assert row(printed, "libraries: cudnn") == "cuDNN 9.1.0"


@pytest.fixture
def real() -> library.Library:
    found = library.load()
    if isinstance(found, library.Missing):
        pytest.skip(found.reason)
    return found


@pytest.mark.slow
def test_with_one_that_has_no_classic_api_its_engines_serve(real: library.Library, tmp_path: Path) -> None:
    path = made(tmp_path, real.version, ALWAYS + GRAPH, real.path)
    reasons, printed = said(str(path))
    lacks = "which has no classic API: its function cudnnCreateTensorDescriptor is missing"
    assert row(printed, "libraries: cudnn") == f"cuDNN {library.in_figures(real.version)}, {lacks}"
    assert "cudnn/graph" not in reasons
    assert int(reasons["engines"]) > 5
