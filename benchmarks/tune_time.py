"""How long ``tune`` takes for whole networks, and what a search twice as long would gain.

    python benchmarks/tune_time.py --models resnet50 mobilenet_v3_large --out results.jsonl

Each network of torchvision is tuned in a fresh process, with an empty store and an empty cache of kernels, in mode
quick, the one of ``tune --quick``: once with that mode's budget for a problem and once with twice as much. The device
time is that of all convolutions, each as often as the network has it, by the times of both searches.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from common.stages import Answer, Stage, serve

import convwright as cw
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.report.benchmarks.lines import Lines
from convwright.settings import BUDGETS_US, Mode

PATIENCE_S = 400.0


def answered(options: argparse.Namespace, question: Answer) -> Answer:
    """One network tuned in this process."""
    from torchvision import models

    dtype = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = models.get_model(question["model"]).eval().to(options.device, dtype, memory_format=torch.channels_last)
    x = torch.randn(options.batch, 3, options.size, options.size, device=options.device, dtype=dtype)
    begun_s = perf_counter()
    tuned = cw.tune(
        model, x.contiguous(memory_format=torch.channels_last), mode=Mode.QUICK,
        budget_us=question["times"] * BUDGETS_US[Mode.QUICK],
    )  # fmt: skip
    took_s = perf_counter() - begun_s
    device_us = {"chosen": 0.0, "torch": 0.0}
    choices: dict[str, str] = {}
    for each in tuned.problems:
        for name, finding in (("chosen", each.findings.choice), ("torch", each.findings.baseline)):
            if finding is not None and finding.measurement is not None:
                device_us[name] += len(each.posed.names) * finding.measurement.device_us.value
        if each.candidate is not None:
            choices[each.posed.problem.key] = each.candidate.id
    return {"took_s": took_s, "problems": len(tuned.problems), "device_us": device_us, "choices": choices}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenet_v3_large"])
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2], help="of the mode's budget")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--dtype", choices=("fp16", "bf16", "fp32"), default="fp16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        serve(partial(answered, options))
        return
    lines = None if options.out is None else Lines(options.out)
    for model in options.models:
        for times in options.times:
            line = one(model, times, options)
            if lines is not None:
                lines.add(line)
            print(_told(line), flush=True)


def one(model: str, times: int, options: argparse.Namespace) -> Answer:
    line = {
        "benchmark": "tune time", "model": model, "times": times, "batch": options.batch, "dtype": options.dtype,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "conditions": dict(conditions(device_facts(options.device))), "failure": None,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        cold = {
            "CONVWRIGHT_STORE": f"{folder}/store.sqlite", "TRITON_CACHE_DIR": f"{folder}/triton",
            "CUDA_CACHE_PATH": f"{folder}/cuda",
        }  # fmt: skip
        with Stage("answer", cold) as process:
            return line | process.ask({"model": model, "times": times}, patience_s=PATIENCE_S)


def _told(line: Answer) -> str:
    if line["failure"]:
        return f"{line['model']}: {line['failure']}"
    chosen_us, torch_us = line["device_us"]["chosen"], line["device_us"]["torch"]
    return (
        f"{line['model']}, {line['times']} times the budget: {line['took_s']:.1f} s for {line['problems']} problems, "
        f"convolutions {chosen_us:,.0f} µs, PyTorch's {torch_us:,.0f} µs"
    )


if __name__ == "__main__":
    main()
