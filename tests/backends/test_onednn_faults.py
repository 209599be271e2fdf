"""What oneDNN crashes on or computes wrong is refused, and what lies next to it is offered and right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from convwright.backends.registry import backend
from convwright.backends.torch_native.onednn_faults import fault, fault_of_pytorchs_call
from convwright.core.candidate import Candidate, Refusal
from convwright.core.error_bound import scaled_bound
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import FINITE_KINDS
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial

CPU = device_facts("cpu")
CRASHES, GARBAGE = "of a dilated filter read only padding", "reads uninitialized memory"
NARROW = "ic8ih9iw1oc1kh2kw1sh2sw2ph1pw1dh1dw1"
# Each with the words of its refusal, or None where it is none.
CASES = [
    # An output along the last dimension reads no element of the input.
    (f"{NARROW}", CRASHES),
    (f"{NARROW} ep:bias", CRASHES),
    (f"{NARROW} dt:bf16", CRASHES),
    (f"{NARROW} dt:fp16 tag:nhwc", CRASHES),
    ("ic8ih1iw5oc1kh3kw2sh2sw1ph3pw2dh1dw1", CRASHES),
    ("ic8id9ih5iw1oc4kd1kh1kw1sd1sh2sw3pd0ph0pw2dd0dh0dw2", CRASHES),
    ("mb2ic16id5ih1iw1oc3kd1kh3kw1sd3sh3sw3pd2ph2pw2dd1dh1dw1 dt:bf16 ep:bias", CRASHES),
    ("mb2ic8iw1oc4kw2sw1pw2dw2", CRASHES),
    (f"{NARROW} dt:fp64", None),
    (f"{NARROW} dir:backward_data", None),
    (f"{NARROW} dir:backward_weight", None),
    ("ic8ih9iw1oc1kh2kw1sh2sw1ph1pw0dh1dw0", None),
    ("ic8ih9iw1oc1kh2kw3sh2sw1ph1pw1", None),
    ("mb2ic8ih9iw1oc4kh2kw1sh2sw2ph1pw1 ep:bias", None),  # not dilated
    ("mb16ic8ih9oc4kh1ph1 dt:bf16", None),
    ("mb16ic8ih9oc4kh1ph1 dt:fp16 ep:bias", None),
    # Padding of one side only is part of the input by then.
    ("ic8ih9iw1oc1kh2kw1sh2sw2ph1pw0 rw:2", None),
    # One column of strided outputs, in bf16.
    ("ic8ih5iw3oc8kh1kw3sh1sw2ph0pw0 dt:bf16", GARBAGE),
    ("mb2ic3ih64iw16oc24kh16kw16sh16sw16ph0pw0 dt:bf16 tag:nhwc", GARBAGE),
    ("ic8ih5iw3oc8kh1kw3sh1sw2ph0pw0 dt:fp16", None),
    ("ic8ih5iw3oc8kh1kw3sh1sw2ph0pw0 dt:fp32", None),
    ("ic8ih5iw3oc8kh1kw3sh1sw1ph0pw0 dt:bf16", None),
    ("ic8ih5iw5oc8kh1kw3sh1sw2ph0pw0 dt:bf16", None),  # two columns
    ("ic8ih2oc8kh3sh2ph1 dt:bf16", None),  # one output
    # Several taps along a depth of 1, in bf16.
    ("ic3id1ih5iw9oc4kd3kh3kw3sd1sh3sw3pd2ph2pw1 dt:bf16", GARBAGE),
    ("ic3id2ih5iw9oc4kd3kh3kw3sd1sh3sw3pd2ph2pw1 dt:bf16", None),
    ("ic3id1ih5iw9oc4kd1kh3kw3sd1sh3sw3pd0ph2pw1 dt:bf16", None),
    ("g17ic17oc17id1ih3iw1kd2kh3kw2sd1sh5sw1pd1ph1pw3dd0dh0dw2 dt:bf16 dir:backward_weight tag:nhwc", GARBAGE),
    # Gradients of inputs in bf16: there is nothing to multiply, or no output reads the last plane.
    ("ic4oc8ih3iw5kh4kw1sh1sw1ph26pw0dh16dw0 dt:bf16 dir:backward_data", "reads only padding"),
    ("ic4oc8ih3iw5kh4kw1sh1sw1ph26pw0dh16dw0 dt:fp16 dir:backward_data", None),
    ("ic4oc8ih30iw5kh4kw1sh1sw1ph26pw0dh16dw0 dt:bf16 dir:backward_data", None),
    ("ic8oc5id9ih31iw31kd2kh2kw2sd2sh2sw2pd0ph0pw0 dt:bf16 dir:backward_data", "the last 1 of 9 in depth"),
    ("ic8oc5id8ih8iw31kd4kh3kw3sd4sh2sw2pd1ph1pw1 dt:bf16 dir:backward_data", "the last 1 of 8 in depth"),
    ("ic8oc5id9ih31iw31kd2kh2kw2sd2sh2sw2pd0ph0pw0 dt:fp16 dir:backward_data", None),
    ("ic8oc5id8ih31iw31kd2kh2kw2sd2sh2sw2pd0ph0pw0 dt:bf16 dir:backward_data", None),
    ("ic8oc5id9ih31iw16kd2kh2kw2sd2sh2sw2pd0ph0pw0 dt:bf16 dir:backward_data", None),
    ("ic8oc5id9ih31iw17kd2kh2kw2sd2sh2sw2pd0ph0pw0 dt:bf16 dir:backward_data", "the last 1 of 9 in depth"),
    ("ic8oc5id6ih5iw31kd2kh2kw2sd2sh1sw1pd0ph0pw0dd1dh0dw0 dt:bf16 dir:backward_data", None),
    ("ic8oc5id4ih8iw31kd1kh3kw1sd2sh1sw1pd0ph1pw0 dt:bf16 dir:backward_data", None),
    # Steps that are counted one by one.
    ("ic1oc2ih2iw2kh3kw3sh1sw715827883ph5pw6dh4dw2 dt:bf16 dir:backward_data", "at most 65,536, got 715,827,883"),
    ("ic4oc4ih5kh1sh1dh70000", "at most 65,536, got 70,001"),
    ("ic4oc4ih5kh1sh3dh1000", None),
    # Gradients of weights in bf16.
    ("ic64ih1oc64kh3sh2ph1 dt:bf16 dir:backward_weight", GARBAGE),
    ("ic8ih5iw1oc8kh3kw3sh2sw2ph1pw1 dt:bf16 dir:backward_weight", GARBAGE),
    ("mb2ic4iw2oc1kw3sw3pw2 dt:bf16 dir:backward_weight", GARBAGE),
    ("ic64ih1oc64kh3sh2ph1 dt:bf16 dir:backward_data", None),
    ("ic64ih4oc64kh3sh2ph1 dt:bf16 dir:backward_weight", None),
    ("ic64ih3oc64kh3sh1ph1 dt:bf16 dir:backward_weight", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), CASES)
def test_which_problems_are_refused(text: str, words: str | None) -> None:
    reason = fault(ConvProblem.parse(text))
    assert reason is None if words is None else words in (reason or "")


def candidates(problem: ConvProblem) -> Iterator[Candidate]:
    every = backend("torch").candidates(problem, CPU, Policy())
    return (offer for offer in every if isinstance(offer, Candidate))


@pytest.mark.parametrize("text", [text for text, _ in CASES])
def test_what_is_offered_is_right(text: str) -> None:
    """Whatever memory held before. On a refused problem nothing runs but what does not use oneDNN."""
    problem = ConvProblem.parse(text)
    for candidate in candidates(problem):
        trial = Trial(candidate, Bench(problem, CPU, Mode.FULL, seed=3))
        check = ErrorCheck(problem, "cpu", kinds=FINITE_KINDS)
        for _ in range(3):
            spoiled = [torch.full((size,), torch.nan) for size in (300, 1000, 4000, 20_000, 70_000) for _ in range(4)]
            del spoiled
            for error in check.errors(trial.run):
                bound = scaled_bound(candidate.arithmetic, problem.dtype, problem.reduction)
                assert error.scaled_max <= bound, (candidate.id, error)


@pytest.mark.parametrize(("text", "words"), [case for case in CASES if case[1] is not None])
def test_onednn_itself_is_never_offered_there(text: str, words: str) -> None:
    offers = list(backend("torch").candidates(ConvProblem.parse(text), CPU, Policy()))
    assert not [offer for offer in offers if isinstance(offer, Candidate) and "onednn" in offer.algorithm]


def test_pytorchs_own_call_is_refused_where_it_asks_onednn() -> None:
    few, grouped = ConvProblem.parse(NARROW), ConvProblem.parse("g2mb2ic4ih3iw1oc16kh1kw1sh1sw2ph2pw3dh1dw1")
    assert fault(few) is not None
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert fault_of_pytorchs_call(few) is None  # of this PyTorch uses no oneDNN
        assert fault_of_pytorchs_call(grouped) is not None
        refusals = [
            offer
            for offer in backend("torch").candidates(grouped, CPU, Policy())
            if isinstance(offer, Refusal) and offer.id == "torch/default"
        ]
    finally:
        torch.set_num_threads(threads)
    assert len(refusals) == 1
    assert refusals[0].reason.startswith("PyTorch's call uses oneDNN, which crashes where outputs of a dilated filter")
    with torch.backends.mkldnn.flags(enabled=False):
        assert fault_of_pytorchs_call(grouped) is None


@pytest.mark.parametrize(
    ("x", "w", "window"),
    [
        ((1, 8, 5, 3), (8, 8, 1, 3), {"stride": (1, 2)}),
        ((1, 64, 1, 1), (64, 64, 3, 3), {"stride": 2, "padding": 1}),
        ((1, 8, 9, 31, 31), (5, 8, 2, 2, 2), {"stride": 2}),
    ],
)
def test_a_call_is_computed_by_what_is_right(
    x: tuple[int, ...], w: tuple[int, ...], window: dict[str, int | tuple[int, ...]]
) -> None:
    """PyTorch's own call reads uninitialized memory, or leaves a gradient unwritten."""
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in (x, w)]
    wide = [each.detach().double().requires_grad_() for each in given]
    ours, own = ((cw.conv2d, F.conv2d), (cw.conv3d, F.conv3d))[len(x) - 4]
    expected = own(*wide, **window)
    dy = torch.randn(expected.shape, generator=generator).bfloat16()
    expected_gradients = torch.autograd.grad(expected, wide, dy.double())
    for _ in range(4):
        spoiled = [torch.full((size,), torch.nan) for size in (300, 1000, 4000, 20_000, 70_000) for _ in range(4)]
        del spoiled
        y = ours(*given, **window)
        found = (y, *torch.autograd.grad(y, given, dy))
    for got, want in zip(found, (expected, *expected_gradients), strict=True):
        assert (got.double() - want).norm() <= 2**-7 * want.norm()


MEETS = """
import torch
from torch import nn
import convwright as cw

cw.enable()
for dtype in (torch.float32, torch.bfloat16):
    layer = nn.Conv2d(8, 1, (2, 1), stride=2, padding=1, dilation=2).to(dtype)
    with torch.no_grad():
        for _ in range(4):
            y = cw.conv2d(torch.randn(1, 8, 9, 1, dtype=dtype), layer.weight, layer.bias, 2, 1, 2)
            if dtype is torch.float32:
                layer(torch.randn(1, 8, 9, 1))
print("done")
"""


def test_a_call_that_meets_one_does_not_end_the_process() -> None:
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1",
        "CONVWRIGHT_STORE": "none", "CONVWRIGHT_MODE": "quick",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", MEETS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr[-500:]
