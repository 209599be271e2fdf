"""Outputs that lie where the residual lies: an engine writes over a residual that no later step reads."""

from __future__ import annotations

from dataclasses import replace

import torch

from backends.triton_interpreted.cases import Operands
from backends.triton_interpreted.winograd_cases import every_tile
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

# Sizes that fill no tile: what covered an element twice would read what it has written.
PROBLEMS = [
    "ic17ih5iw7oc18kh3ph1 ep:residual+bias+relu tag:nhwc dt:fp16",
    "g4mb2ic4ih9iw21oc4kh7ph3 ep:residual+relu dt:fp16",
    "ic18ih5iw6oc17kh3ph1 ep:residual+bias+relu",
    "g3ic30ih5iw7oc9kh1 ep:residual+bias",
    "ic20ih6iw7oc2kh3ph1 ep:residual+bias+relu",
    "mb2ic3ih7iw9oc17kh3ph1 ep:residual+bias+silu tag:nhwc dt:fp16",
    "ic34ih6iw5oc20kh1 ep:residual+relu tag:nhwc dt:bf16",
    "ic18ih5iw6oc17kh3ph1 ep:residual+bias tag:nhwc",
    "g16ic16ih7iw9oc16kh7ph3 ep:residual+relu tag:nhwc dt:fp16",
    "g6ic6ih7iw37oc6kh3ph1 ep:residual+bias+relu",
    "ic16id3ih4iw5oc12kd3kh3pd1ph1 ep:residual+bias+relu tag:nhwc dt:fp16",
]


def candidates(problem: ConvProblem, device: DeviceFacts, each: int) -> list[Candidate]:
    """The first few configurations of each algorithm, and one in parts where there is one. Winograd's are not offered
    for problems so small."""
    offers = [offer for offer in TritonKernels().candidates(problem, device, Policy()) if isinstance(offer, Candidate)]
    if problem.dtype is DType.FP32 and problem.groups == 1 and problem.w.shape[2:] == (3, 3):
        offers += every_tile(problem)
    found = dict[str, list[Candidate]]()
    for offer in offers:
        found.setdefault(offer.algorithm, []).append(offer)
    parted = {name: [one for one in some if dict(one.config).get("parts", 1) != 1][:1] for name, some in found.items()}
    return [one for name, some in found.items() for one in dict.fromkeys([*some[:each], *parted[name]])]


def computes_the_same_over_the_residual(candidate: Candidate, given: Operands, device: DeviceFacts) -> None:
    plan = TritonKernels().build(candidate, device)
    apart = given.computed(plan).clone()
    assert given.residual is not None
    over = given.out.copy_(given.residual)
    together = replace(given, residual=over)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device=given.x.device)
    assert plan(given.x, plan.prepare(given.w), given.bias, together.residual, over, workspace) is over
    assert torch.equal(over, apart), candidate.id
