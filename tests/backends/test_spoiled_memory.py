"""A gradient that ends the process where PyTorch computes it with channels last is computed in planes."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.backends.torch_native.own import gradients, spoils_memory
from convwright.core.problem import ConvProblem

ENDS = "mb4ic5ih6iw10oc2kh1sh1sw2 dir:backward_weight"
MANY_CALLS = f"""
import torch
import convwright as cw

torch.set_num_threads(1)
x, dy = torch.randn(4, 5, 6, 10), torch.randn(4, 2, 6, 5)
last = [tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, dy)]
for tag, operands, algorithm in (("nchw", (x, dy), "relayout(nhwc, torch/default)"), ("nhwc", last, "torch/default")):
    plan = cw.plan(f"{ENDS} tag:{{tag}}", algorithm=algorithm, device="cpu")
    for _ in range(1500):
        plan(*operands)
print("done")
"""


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_it_is_as_in_double_precision(layout: str) -> None:
    formats = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    problem = ConvProblem.parse(f"{ENDS} tag:{layout}")
    x, dy, w = torch.randn(4, 5, 6, 10), torch.randn(4, 2, 6, 5), torch.randn(2, 5, 1, 1)
    moved = [tensor.contiguous(memory_format=formats[layout]) for tensor in (dy, x, w)]
    dx, dw, _ = gradients(problem, *moved, (True, True, False))
    expected = gradients(problem, dy.double(), x.double(), w.double(), (True, True, False))
    torch.testing.assert_close([dx.double(), dw.double()], list(expected[:2]), rtol=1e-5, atol=1e-5)


def test_it_does_not_end_the_process() -> None:
    """Each of some hundred such gradients with channels last wrote beyond its memory (PyTorch 2.13, oneDNN 3.12)."""
    ended = subprocess.run([sys.executable, "-c", MANY_CALLS], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr[-500:]


@pytest.mark.parametrize(
    ("text", "spoils"),
    [
        (ENDS, True), ("ic3ih8oc8kh1sh2", True), ("ic3ih8oc8kh1", False), ("ic3ih8oc8kh3sh2ph1", False),
        ("g3ic3ih8oc6kh1sh2", False), ("ic32ih8oc8kh1sh2", False), ("ic3ih8oc8kh1sh2 dt:bf16", False),
    ],
)  # fmt: skip
def test_which_gradients_are_of_that_kind(text: str, spoils: bool) -> None:
    assert spoils_memory(ConvProblem.parse(text)) is spoils


@pytest.mark.slow
def test_advice_for_training_does_not_lead_there() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 1, stride=2), nn.ReLU()), torch.randn(2, 3, 8, 8)
    advice = cw.advise(model, x, backward=True, mode="quick")
    assert any("layer '0' may end the process" in note for note in advice.notes)
    assert not any("channels_last" in suggestion.how for suggestion in advice.suggestions)
    assert not any("may end" in note for note in cw.advise(model, x, mode="quick").notes)
