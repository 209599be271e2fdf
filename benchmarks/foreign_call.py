"""How much of a cuDNN plan's host time is cuDNN's own: the plan beside the bare foreign call in it.

    python benchmarks/foreign_call.py [--out results.jsonl]

Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from convwright.backends.cudnn.classic.plan import ClassicPlan
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.eager.running.workspace import workspace
from convwright.measuring.clock import HostClock
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.ranges import without_range
from convwright.measuring.timer import measure_calls

ALGORITHMS = ["cudnn/implicit-gemm", "cudnn/implicit-precomp-gemm", "cudnn/gemm", "cudnn/engine-28", "cudnn/engine-0"]


def foreign(plan: ClassicPlan | GraphPlan, handle: Any, pointers: tuple[Any, ...]) -> Callable[[], object]:
    """cuDNN's own function alone, with everything around it prepared."""
    if isinstance(plan, ClassicPlan):
        return lambda: plan._enqueue(handle, *pointers)
    x, w, _, _, y, workspace = pointers
    pack = plan._packed((x, w, 0, 0, y, workspace))
    return lambda: plan._execute(handle, plan._address, pack.address)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    x, w = torch.randn(1, 32, 14, 14, device="cuda"), torch.randn(32, 32, 3, 3, device="cuda")
    out, lines = torch.empty_like(F.conv2d(x, w, None, 1, 1)), []
    for name in ALGORITHMS:
        with torch.no_grad():
            cw.conv2d(x, w, None, 1, 1, algorithm=name)
            choice = cw.last_choice()
            assert choice is not None
            plan = without_range(choice.plan())
            assert isinstance(plan, ClassicPlan | GraphPlan)
            scratch = workspace(plan.workspace_bytes, x.device)() if plan.workspace_bytes else None
            at = 0 if scratch is None else scratch.data_ptr()
            handle = plan._handle(torch.cuda.current_stream().cuda_stream)
            pointers = x.data_ptr(), w.data_ptr(), None, None, out.data_ptr(), at

            def planned(plan: ClassicPlan | GraphPlan = plan, scratch: Tensor | None = scratch) -> Tensor:
                return plan(x, w, None, None, out, scratch)

            calls: dict[str, Callable[[], object]] = {
                "plan": planned,
                "foreign call": foreign(plan, handle, pointers),
                "F.conv2d": lambda: F.conv2d(x, w, None, 1, 1),
            }
            for call in calls.values():
                call()
            times = measure_calls(calls, clock=HostClock("cuda"), budget_us=1e6)
        host_us = {call: timing.call_us.value for call, timing in times.items()}
        print(f"{name:30}", {call: round(value, 2) for call, value in host_us.items()})
        known = dict(conditions(device_facts("cuda")))
        line = {"benchmark": "foreign call", "candidate": name, "host_us": host_us}
        lines.append(line | {"conditions": known})
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
