"""Whole models, unmodified: what a run takes under cw.enable(), beside PyTorch's own convolutions.

    OMP_NUM_THREADS=2 python benchmarks/enable_models.py [--out results.jsonl] [--device cpu] [--models resnet18 unet …]
        [--modes inference training] [--cases fp32 amp amp-last] [--tf32 off] [--errors] [--hurried]

Those of torchvision, and networks of other layers than classifiers are made of (`common/networks`). Both sides run
interleaved in one run of the project's timer. They are one model and its copy, except that the copy's convolutions have
kept PyTorch's own function. Before that the model runs until every choice is made, and waits for compilers in between;
"ready" is how long that took, with --hurried where all processors compile meanwhile. With --errors the outputs of both
are held against float64, and in training, which is a forward and a backward pass, all gradients together. On a GPU the
time is that of eager runs, the slower of host and device.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from common.kept import kept
from common.networks import NETWORKS
from common.settled import settle
from torch import Tensor, nn

import convwright as cw
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.tuning.session import session

MODELS = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "densenet121", "efficientnet_b0")
OWN = ("unet", "wavenet", "video")
SIZE = 224
LOWERED = {"cpu": torch.bfloat16, "cuda": torch.float16}


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    facts = device_facts(options.device)
    known = dict(conditions(facts))
    for name, mode, case in product(options.models, options.modes, options.cases):
        torch.manual_seed(0)
        model, shape, versions = network(name)
        setting = Setting(training=mode == "training", autocast="amp" in case, last="last" in case)
        memory_format = torch.channels_last if setting.last and len(shape) == 3 else torch.contiguous_format
        model = model.train(setting.training).to(torch.device(options.device), memory_format=memory_format)  # type: ignore[call-overload]
        own = kept(model)
        x = torch.randn(options.batch, *shape, device=options.device).contiguous(memory_format=memory_format)
        ours, torchs = pass_of(model, x, setting), pass_of(own, x, setting)
        exact = pass_of(copy.deepcopy(own).double(), x.double(), setting)() if options.errors else None
        torchs()
        torch_peak = peak_bytes(torchs) if x.is_cuda else None  # before ours keeps any workspace
        with cw.enabled():
            ready_s = settle(ours, hurried=options.hurried)
            errors = None if exact is None else {"ours": off(ours(), exact), "torch": off(torchs(), exact)}
            calls = {"ours": ended(ours), "torch": ended(torchs)}
            times = measure_calls(calls, clock=WallClock(), budget_us=options.budget_s * 1e6)
            peaks = {"ours": peak_bytes(ours), "torch": torch_peak} if x.is_cuda else None
        cw.disable()
        ids = [choice.candidate.id for choice in session().chosen]
        session().forget()
        verdict = compare(times["ours"], times["torch"])
        yield {
            "benchmark": "enable models", "model": name, "batch": options.batch, "mode": mode, "case": case,
            "relative_l2": errors, "ready_s": ready_s, "choices": dict(Counter(ids)), "peak_bytes": peaks,
            "ours_us": times["ours"].call_us.value, "torch_us": times["torch"].call_us.value,
            "ratio": verdict.to_json(), "unstable": times["ours"].unstable or times["torch"].unstable,
            "samples": times["ours"].samples, "conditions": known | versions,
        }  # fmt: skip


def peak_bytes(call: Callable[[], Tensor]) -> int:
    """The most memory that PyTorch's allocator holds during a pass, both models included."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    return torch.cuda.max_memory_allocated()


@dataclass(frozen=True)
class Setting:
    training: bool
    autocast: bool
    last: bool


def network(name: str) -> tuple[nn.Module, tuple[int, ...], dict[str, str]]:
    """A network of that name, the shape of one of its inputs, and the version of the library that has it."""
    if name in NETWORKS:
        make, shape = NETWORKS[name]
        return make(), shape, {}
    import torchvision

    versions, segmenting = {"torchvision": torchvision.__version__}, torchvision.models.segmentation
    if hasattr(segmenting, name):
        return getattr(segmenting, name)(weights=None, weights_backbone=None), (3, 512, 512), versions
    return getattr(torchvision.models, name)(), (3, SIZE, SIZE), versions


def pass_of(model: nn.Module, x: Tensor, setting: Setting) -> Callable[[], Tensor]:
    """One pass, which gives the output, or all gradients in one."""
    lowered, kind = setting.autocast and x.dtype is torch.float32, x.device.type

    def forward() -> Tensor:
        with torch.autocast(kind, LOWERED[kind], enabled=lowered):
            y: Tensor = model(x)
        return y

    def both() -> Tensor:
        with torch.enable_grad():
            loss = forward().to(x.dtype).square().mean()
            return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    return both if setting.training else forward


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
    parser.add_argument("--models", nargs="+", default=[*MODELS, *OWN])
    parser.add_argument("--modes", nargs="+", default=["inference"], choices=["inference", "training"])
    parser.add_argument(
        "--cases", nargs="+", default=["fp32"], choices=["fp32", "fp32-last", "amp", "amp-last"],
        help="amp is fp16, on a CPU bf16; last is channels last",
    )  # fmt: skip
    parser.add_argument("--errors", action="store_true", help="hold outputs or gradients against float64")
    parser.add_argument("--hurried", action="store_true", help="compile on all processors while nothing else runs")
    parser.add_argument("--tf32", choices=["on", "off"], default="on")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = options.tf32 == "on"
    lines = []
    for row in rows(options):
        lines.append(json.dumps(row) + "\n")
        ratio, errors, peaks = row["ratio"]["ratio"], row["relative_l2"], row["peak_bytes"]
        print(
            f"{row['model']:20} {row['mode']:9} {row['case']:9} "
            f"{row['ours_us'] / 1e3:8.3f} {row['torch_us'] / 1e3:8.3f} ms "
            f"{row['ratio']['outcome']:9} {ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] of PyTorch's; "
            + (f"memory {peaks['ours'] / peaks['torch']:.3f}; " if peaks else "")
            + (f"errors {errors['ours']:.1e} and {errors['torch']:.1e}; " if errors else "")
            + f"ready in {row['ready_s']:.0f} s",
            flush=True,
        )
        if options.out:
            options.out.write_text("".join(lines))


if __name__ == "__main__":
    main()
