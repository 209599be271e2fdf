"""Without cuDNN and Triton, as on macOS, the rest works and says in one sentence what is missing."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import sys
sys.modules["triton"] = None
from convwright.backends.cudnn import library
library.SONAME = "libcudnn-that-is-not-there.so.9"
library._installed = lambda *patterns: iter(())
import torch
import convwright as cw
from convwright.cli.main import main

x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
assert torch.equal(cw.conv2d(x, w), torch.conv2d(x, w))
assert cw.find(x, w, mode="quick").choice is not None
for refusal in cw.find("ic8ih9oc8kh3", device="h200", mode="heuristic").refusals:
    print(refusal.id, "|", refusal.reason)
sys.argv = ["convwright", "show-env"]
main()
"""


def test_the_rest_works() -> None:
    environment = {**os.environ, "CONVWRIGHT_STORE": "none", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reasons = dict(line.split(" | ", 1) for line in done.stdout.splitlines() if " | " in line)
    assert "cuDNN 9 could not be loaded" in reasons["cudnn/graph"]
    assert "pip install" in reasons["cudnn/graph"]
    triton = next(reason for name, reason in reasons.items() if name.startswith("triton/"))
    assert "not installed" in triton
    assert "torch 2" in done.stdout
