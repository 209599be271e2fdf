"""Whole models of torchvision's, unmodified: what a run takes under cw.enable(), beside PyTorch's own convolutions.

    OMP_NUM_THREADS=2 python benchmarks/enable_models.py [--out results.jsonl] [--device cpu] [--models resnet18 …]

Both sides run interleaved in one run of the project's timer. They are one model and its copy, except that the copy's
convolutions have kept PyTorch's own function. Before that the model runs as often as it takes until every choice is
made and has proved itself, and waits for compilers in between. The outputs of both are held against float64. On a GPU
the time is that of eager runs, the slower of host and device.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchvision
from enable_host_cost import kept
from torch import Tensor, nn

import convwright as cw
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.ops.calls.form import stand_ins
from convwright.ops.running.proving import Proving
from convwright.tuning.session import session

MODELS = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "densenet121", "efficientnet_b0")
SIZE, WARM_UP, MOST_PASSES = 224, 60, 1000


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    facts = device_facts(options.device)
    known = dict(conditions(facts)) | {"torchvision": torchvision.__version__}
    for name in options.models:
        torch.manual_seed(0)
        model = getattr(torchvision.models, name)().eval().to(options.device)
        own = kept(model)
        x = torch.randn(options.batch, 3, SIZE, SIZE, device=options.device)
        exact = copy.deepcopy(own).double()(x.double())
        with cw.enabled():
            for _ in range(2):
                for _ in range(WARM_UP):
                    model(x)
                session().wait_for_compilers()
            for passes in range(MOST_PASSES):
                model(x)
                if passes >= WARM_UP and not proving():
                    break
            errors = {"ours": off(model(x), exact), "torch": off(own(x), exact)}
            calls = {"ours": ended(model, x), "torch": ended(own, x)}
            ours, torchs = measure_calls(calls, clock=WallClock(), budget_us=options.budget_s * 1e6).values()
        cw.disable()
        ids = [choice.candidate.id for choice in session().chosen]
        session().forget()
        verdict = compare(ours, torchs)
        yield {
            "benchmark": "enable models", "model": name, "batch": options.batch, "relative_l2": errors,
            "choices": dict(Counter(ids)),
            "ours_us": ours.call_us.value, "torch_us": torchs.call_us.value, "ratio": verdict.to_json(),
            "unstable": ours.unstable or torchs.unstable, "samples": ours.samples, "conditions": known,
        }  # fmt: skip


def proving() -> bool:
    """Whether a choice has still to prove itself."""
    slots = [slot for form in stand_ins() for alike in form.slots._by_shape.values() for slot in alike]
    return any(isinstance(slot.run, Proving) for slot in slots)


def ended(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """A run that has ended when it returns."""

    def run() -> Tensor:
        y: Tensor = model(x)
        if y.is_cuda:
            torch.cuda.synchronize(y.device)
        return y

    return run


def off(y: Tensor, exact: Tensor) -> float:
    return float((y.double() - exact).norm() / exact.norm())


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=20.0)
    parser.add_argument("--models", nargs="+", default=MODELS)
    options = parser.parse_args()
    lines = []
    for row in rows(options):
        lines.append(json.dumps(row) + "\n")
        ratio, errors = row["ratio"]["ratio"], row["relative_l2"]
        print(
            f"{row['model']:20} {row['ours_us'] / 1e3:8.3f} {row['torch_us'] / 1e3:8.3f} ms "
            f"{row['ratio']['outcome']:9} {ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] of PyTorch's; "
            f"errors {errors['ours']:.1e} and {errors['torch']:.1e}",
            flush=True,
        )
        if options.out:
            options.out.write_text("".join(lines))


if __name__ == "__main__":
    main()
