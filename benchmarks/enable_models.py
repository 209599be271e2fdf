"""Whole models, unmodified: what a run takes under cw.enable(), beside PyTorch's own convolutions.

    OMP_NUM_THREADS=2 python benchmarks/enable_models.py [--out results.jsonl] [--device cpu] [--models resnet18 unet …]
        [--training] [--autocast] [--tf32 off]

Those of torchvision, and networks of other layers than classifiers are made of (`common/networks`). Both sides run
interleaved in one run of the project's timer. They are one model and its copy, except that the copy's convolutions have
kept PyTorch's own function. Before that the model runs as often as it takes until every choice is made and has proved
itself, and waits for compilers in between; "ready" is how long that took. The outputs of both are held against float64,
and in training, which is a forward and a backward pass, all gradients together. On a GPU the time is that of eager
runs, the slower of host and device.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common.kept import kept
from common.networks import NETWORKS
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
LOWERED = {"cpu": torch.bfloat16, "cuda": torch.float16}


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    facts = device_facts(options.device)
    known = dict(conditions(facts))
    for name in options.models:
        torch.manual_seed(0)
        model, shape, versions = network(name)
        model = model.train(options.training).to(options.device)
        own = kept(model)
        x = torch.randn(options.batch, *shape, device=options.device)
        ours, torchs = pass_of(model, x, options), pass_of(own, x, options)
        exact = pass_of(copy.deepcopy(own).double(), x.double(), options)()
        with cw.enabled():
            begun_s = perf_counter()
            for _ in range(2):
                for _ in range(WARM_UP):
                    ours()
                session().wait_for_compilers()
            for passes in range(MOST_PASSES):
                ours()
                if passes >= WARM_UP and not proving():
                    break
            ready_s = perf_counter() - begun_s
            errors = {"ours": off(ours(), exact), "torch": off(torchs(), exact)}
            calls = {"ours": ended(ours), "torch": ended(torchs)}
            times = measure_calls(calls, clock=WallClock(), budget_us=options.budget_s * 1e6)
        cw.disable()
        ids = [choice.candidate.id for choice in session().chosen]
        session().forget()
        verdict = compare(times["ours"], times["torch"])
        yield {
            "benchmark": "enable models", "model": name, "batch": options.batch, "training": options.training,
            "autocast": options.autocast, "relative_l2": errors, "ready_s": ready_s, "choices": dict(Counter(ids)),
            "ours_us": times["ours"].call_us.value, "torch_us": times["torch"].call_us.value,
            "ratio": verdict.to_json(), "unstable": times["ours"].unstable or times["torch"].unstable,
            "samples": times["ours"].samples, "conditions": known | versions,
        }  # fmt: skip


def network(name: str) -> tuple[nn.Module, tuple[int, ...], dict[str, str]]:
    """A network of that name, the shape of one of its inputs, and the version of the library that has it."""
    if name in NETWORKS:
        make, shape = NETWORKS[name]
        return make(), shape, {}
    import torchvision

    return getattr(torchvision.models, name)(), (3, SIZE, SIZE), {"torchvision": torchvision.__version__}


def pass_of(model: nn.Module, x: Tensor, options: argparse.Namespace) -> Callable[[], Tensor]:
    """One pass, which gives the output, or all gradients in one."""
    lowered, kind = options.autocast and x.dtype is torch.float32, x.device.type

    def forward() -> Tensor:
        with torch.autocast(kind, LOWERED[kind], enabled=lowered):
            y: Tensor = model(x)
        return y

    def both() -> Tensor:
        with torch.enable_grad():
            loss = forward().to(x.dtype).square().mean()
            return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    return both if options.training else forward


def proving() -> bool:
    """Whether a choice has still to prove itself."""
    slots = [slot for form in stand_ins() for alike in form.slots._by_shape.values() for slot in alike]
    return any(isinstance(slot.run, Proving) for slot in slots)


def ended(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A pass that has ended when it returns."""

    def call() -> Tensor:
        y = run()
        if y.is_cuda:
            torch.cuda.synchronize(y.device)
        return y

    return call


def off(y: Tensor, exact: Tensor) -> float:
    return float((y.double() - exact).norm() / exact.norm())


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=20.0)
    parser.add_argument("--models", nargs="+", default=[*MODELS, *NETWORKS])
    parser.add_argument("--training", action="store_true", help="a forward and a backward pass")
    parser.add_argument("--autocast", action="store_true", help="in fp16, on a CPU in bf16")
    parser.add_argument("--tf32", choices=["on", "off"], default="on")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = options.tf32 == "on"
    lines = []
    for row in rows(options):
        lines.append(json.dumps(row) + "\n")
        ratio, errors = row["ratio"]["ratio"], row["relative_l2"]
        print(
            f"{row['model']:20} {row['ours_us'] / 1e3:8.3f} {row['torch_us'] / 1e3:8.3f} ms "
            f"{row['ratio']['outcome']:9} {ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] of PyTorch's; "
            f"errors {errors['ours']:.1e} and {errors['torch']:.1e}; ready in {row['ready_s']:.0f} s",
            flush=True,
        )
        if options.out:
            options.out.write_text("".join(lines))


if __name__ == "__main__":
    main()
