"""A network that one kernel of a user's computes, and its plan by times that a test makes up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from convwright.api.user_kernels import register_kernel
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store
from convwright.tuning import listing
from tuning.made import measurement

X = torch.randn(1, 4, 64, 64, generator=torch.Generator().manual_seed(1))


class Sixteenfold(nn.Module):
    """Fifteen sums, which are one product."""

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for _ in range(15):
            y = y + x
        return y


def register(version: str = "1", *, serves: bool = True, run: Any = None, writes_out: bool = False) -> None:
    def is_sixteenfold(problem: Any) -> bool:
        return serves and str(problem.expression).count("a") == 16

    run = run or (lambda problem: lambda a: a * 16)
    register_kernel(
        "sixteen", run, kind="pointwise", serves=is_sixteenfold, version=version, writes_out=writes_out
    )  # fmt: skip


def planned(device: str = "cpu") -> Engine:
    """By times that a store says, so that nothing hangs on how quick a machine is."""
    facts = device_facts(device)
    with Store.open(None) as store:
        for layout in ("nchw", "nhwc"):
            problem = parse(f'pointwise "{" + ".join("a" * 16)}" mb1ic4ih64 tag:{layout}')
            for candidate in listing.candidates(listing.direct(problem, facts, Policy())):
                time_us = 10.0 if candidate.backend == "user" else 100.0
                print_ = listing.fingerprint(candidate, facts)
                store.record(problem.key, facts.key, candidate.id, print_, measurement(time_us), None)
        return optimize(Sixteenfold().eval(), X.to(device), mode="heuristic", store=store)


def runs(engine: Engine) -> list[str]:
    return [step.candidate.id for step in engine.assignment.steps if step.candidate is not None]
