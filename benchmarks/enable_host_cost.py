"""What cw.enable() costs the host: convolutions of a ResNet-18 at tiny inputs, through nn.Conv2d, on and off.

    python benchmarks/enable_host_cost.py [--out results.jsonl] [--device cuda] [--budget-s 2]

Both sides are interleaved in one run of the project's timer. They are the same modules, except that PyTorch's side has
kept PyTorch's own function. On a GPU the time is that of the host alone: the device is idle before and after each
sample and nobody waits for it in between.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common.kept import kept
from common.resnet18 import ResNet18
from torch import Tensor, nn

import convwright as cw
from convwright.measuring.clock import Clock, HostClock, WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls

LIMITS = {"no gradient": 1.1, "forward and backward": 1.2}
WIDTH, SIZE, PROVING = 8, 8, 30


def layers(device: str) -> Iterator[tuple[str, nn.Conv2d]]:
    """The distinct convolutions of the model."""
    seen = set()
    for module in ResNet18(WIDTH).to(device).modules():
        if isinstance(module, nn.Conv2d):
            name = f"{module.in_channels}→{module.out_channels} {module.kernel_size[0]}x stride {module.stride[0]}"
            if name not in seen:
                seen.add(name)
                yield name, module
    yield "8→8 3x stride 1, bias", nn.Conv2d(8, 8, 3, padding=1).to(device)


def chain(device: str) -> nn.Sequential:
    """Its 20 convolutions one after the other, of one width and on images that none of them makes smaller."""
    found = [module.kernel_size[0] for module in ResNet18(WIDTH).modules() if isinstance(module, nn.Conv2d)]
    made = [nn.Conv2d(WIDTH, WIDTH, taps, padding=taps // 2, bias=False) for taps in found]
    return nn.Sequential(*made).to(device)


def calls(module: nn.Module, x: Tensor, *, backward: bool) -> tuple[Callable[[], object], Callable[[], object]]:
    """Ours and PyTorch's."""

    def call_of(of: nn.Module) -> Callable[[], object]:
        if not backward:
            return lambda: of(x)
        wanted = list(of.parameters())
        dy = torch.ones_like(of(x))
        return lambda: torch.autograd.grad(of(x), wanted, dy)

    return call_of(module), call_of(kept(module))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget-s", type=float, default=2.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    clock: Clock = HostClock(options.device) if options.device.startswith("cuda") else WallClock()
    known, lines = dict(conditions(device_facts(options.device))), []
    subjects = [*((name, module, 1) for name, module in layers(options.device)), ("all 20", chain(options.device), 20)]
    cw.enable()
    for (name, module, count), what in ((subject, what) for subject in subjects for what in LIMITS):
        conv = next(each for each in module.modules() if isinstance(each, nn.Conv2d))
        x = torch.randn(1, conv.in_channels, SIZE, SIZE, device=options.device)
        with torch.set_grad_enabled(what != "no gradient"):
            ours, theirs = calls(module, x, backward=what != "no gradient")
            for call in (ours, theirs) * PROVING:
                call()  # the second call of a shape tunes, and on a CPU the next two dozen show whether it was right
            last = cw.last_choice()
            times = measure_calls({"ours": ours, "torch": theirs}, clock=clock, budget_us=options.budget_s * 1e6)
        verdict = compare(times["ours"], times["torch"])
        line = {
            "benchmark": "enable host cost", "layer": name, "what": what, "convolutions": count,
            "candidate": last.candidate.id if last is not None else None,
            "ours_us": times["ours"].call_us.value / count, "torch_us": times["torch"].call_us.value / count,
            "ratio": verdict.ratio.value, "ratio_low": verdict.ratio.low, "ratio_high": verdict.ratio.high,
            "limit": LIMITS[what], "samples": times["ours"].samples, "conditions": known,
        }  # fmt: skip
        lines.append(line)
        print(
            f"{name:22} {what:21} {line['candidate'] or '':32} {line['ours_us']:8.2f} {line['torch_us']:8.2f} µs "
            f"{line['ratio']:.3f} [{line['ratio_low']:.3f}, {line['ratio_high']:.3f}] of at most {LIMITS[what]}",
            flush=True,
        )
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
