"""A model that is fed 200 image sizes, each once: unmodified under cw.enable(), and as PyTorch runs it.

    python benchmarks/many_sizes.py [--out results.jsonl] [--device cuda] [--width 64] [--train] [--rounds 5]

Each pass is a process of its own, which has met no size before; passes take turns in who goes first. The time of a
pass is that of all images together, from the first to the last, searches included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from common.resnet18 import ResNet18
from torch import Tensor

import convwright as cw
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts

LIMIT = 1.1
PASSES = ("torch", "ours")


def images(options: argparse.Namespace) -> Iterator[Tensor]:
    """Each size once, in the same random order in every pass."""
    sizes = [options.smallest + i for i in range(options.sizes)]
    for height, width in zip(*(random.Random(seed).sample(sizes, len(sizes)) for seed in (0, 1)), strict=True):
        yield torch.randn(1, 3, height, width, device=options.device)


def one_pass(which: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds for all images, and what searches took of them."""
    from convwright.tuning.session import session

    torch.manual_seed(0)
    model, given = ResNet18(options.width).to(options.device).train(options.train), list(images(options))
    warm = torch.randn(1, 3, options.smallest - 1, options.smallest - 1, device=options.device)
    with torch.set_grad_enabled(options.train):
        for _ in range(3):
            step(model, warm)
        if which == "ours":
            cw.enable()
        wait(options.device)
        begun = perf_counter()
        for image in given:
            step(model, image)
        wait(options.device)
        return {"total_s": perf_counter() - begun, "searching_s": session().spent_us / 1e6}


def step(model: torch.nn.Module, image: Tensor) -> None:
    y = model(image)
    if y.requires_grad:
        y.sum().backward()


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def in_a_process(which: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--one-pass", which]
    environment = os.environ | {"CONVWRIGHT_MODE": "quick", "CONVWRIGHT_STORE": "none"}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    made: dict[str, float] = json.loads(said.splitlines()[-1])
    return made


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--smallest", type=int, default=65)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one-pass", choices=PASSES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = options_given()
    if options.one_pass:
        print(json.dumps(one_pass(options.one_pass, options)))
        return
    rounds: list[dict[str, Any]] = []
    for i in range(options.rounds):
        taken = {which: in_a_process(which) for which in (PASSES if i % 2 else PASSES[::-1])}
        ratio = taken["ours"]["total_s"] / taken["torch"]["total_s"]
        rounds.append({"ratio": ratio, **taken})
        print(
            f"PyTorch {taken['torch']['total_s']:.3f} s, enabled {taken['ours']['total_s']:.3f} s, of which searching "
            f"{taken['ours']['searching_s']:.3f} s: {ratio:.3f}",
            flush=True,
        )
    ratios = [each["ratio"] for each in rounds]
    line = {
        "benchmark": "many sizes", "sizes": options.sizes, "smallest": options.smallest, "width": options.width,
        "train": options.train, "ratio": median(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios),
        "limit": LIMIT, "rounds": rounds, "conditions": dict(conditions(device_facts(options.device))),
    }  # fmt: skip
    print(f"{line['ratio']:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}, of at most {LIMIT}")
    if options.out:
        options.out.write_text(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
