"""Tensor cores of Hopper read a left operand from registers after the instruction that names them: our kernels fill
these again when they are done. Looked at is the best configuration of each algorithm for some layers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.launching import launch
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(launch.interpreting(), reason="TRITON_INTERPRET is set: nothing is compiled")

H200 = profile("h200")
LAYERS = (
    "mb32ic256ih14oc256kh3ph1", "mb32ic256ih14oc256kh3ph1 tag:nhwc",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dt:bf16", "mb32ic256ih14oc256kh3ph1 dt:fp16",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dt:int8",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dir:backward_weight",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc dt:bf16 dir:backward_weight",
    "mb32ic256ih13oc256kh3ph1 tag:nhwc dt:fp16 dir:backward_weight",
    "mb32ic256ih28oc256kh3ph1sh2 tag:nhwc dt:fp16 dir:backward_data",
)  # fmt: skip
_FROM_REGISTERS = re.compile(r"wgmma\.mma_async\S* \{[^}]*\}, \{")
_EVENTS = re.compile(
    r"(?P<products>wgmma\.mma_async)|wgmma\.wait_group\S* (?P<left>\d+)|(?P<filled>ldmatrix|ld\.shared)"
)


def filled_while_read(ptx: str) -> bool:
    """Whether a loop loads from shared memory to registers while products may read some."""
    return any(_FROM_REGISTERS.search(loop) and _is_filled(loop) for loop in _loops(ptx))


def _loops(ptx: str) -> Iterator[str]:
    """Those without another inside."""
    for found in re.finditer(r"^(\$L\w+):", ptx, flags=re.MULTILINE):
        label = re.escape(found[1])
        end = re.search(rf"bra\S*\s+{label};", ptx[found.end() :])
        if end is not None:
            yield ptx[found.end() : found.end() + end.start()]


def _is_filled(loop: str) -> bool:
    """In the second of two turns, as in every later one. What is loaded between the products of one step goes to
    registers of its own."""
    pending, begun = 0, False
    for turn in range(2):
        begun = False
        for event in _EVENTS.finditer(loop):
            if event["products"]:
                pending, begun = pending + 1, True
            elif event["left"]:
                pending = min(pending, int(event["left"]))
            elif turn and pending and not begun:
                return True
    return False


def kernels(text: str) -> list[Candidate]:
    """The best of each algorithm."""
    found: dict[str, Candidate] = {}
    for offer in TritonKernels().candidates(ConvProblem.parse(text), H200, Policy()):
        if isinstance(offer, Candidate):
            found.setdefault(offer.algorithm, offer)
    return [*found.values()]


@pytest.mark.slow
@pytest.mark.parametrize("text", LAYERS)
def test_no_registers_are_filled_while_tensor_cores_read_them(text: str) -> None:
    for candidate in kernels(text):
        for call in kernel_calls(candidate):
            assert not filled_while_read(call.compile("sm_90").asm["ptx"]), (candidate.id, call.kernel.__name__)


STEP = """
$L__BB0_1:
	{wait}
	ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r1, %r2}}, [%r9];
	wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{%f1,%f2}}, {operand}, %rd1, p, 1, 1;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned {left};
	@%p1 bra 	$L__BB0_1;
"""
DONE = "wgmma.wait_group.sync.aligned 0;"


@pytest.mark.parametrize(
    ("told", "is_filled"),
    [
        ({"wait": "", "operand": "{%r1,%r2}", "left": 1}, True),
        ({"wait": "", "operand": "{%r1,%r2}", "left": 0}, False),
        ({"wait": DONE, "operand": "{%r1,%r2}", "left": 1}, False),
        ({"wait": "", "operand": "%rd2", "left": 1}, False),
    ],
)
def test_such_a_loop_is_seen(told: dict[str, object], is_filled: bool) -> None:
    assert filled_while_read(STEP.format(**told)) == is_filled
