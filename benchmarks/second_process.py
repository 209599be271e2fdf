"""A tuned model in a second process: what the first call of each convolution costs there, and what it asks of whom.

    python benchmarks/second_process.py [--out results.jsonl] [--device cuda]

The first process meets convolutions of a ResNet-50 and tunes them, as calls do. The second one, with the same store,
loads CUDA and cuDNN by a convolution that is not in the table, and calls each of them once. "planned" counts how often
cuDNN's planner was asked, "searched" how often anything was measured: both must be 0, and the choices the same. A third
process makes those of the calls with PyTorch's own functions that they serve in the second: what PyTorch's first call
takes there, since cuDNN loads kernels as they are needed, is no part of what ours may take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Batch, channels, size, output channels, taps, stride.
LAYERS = [
    (8, 3, 224, 64, 7, 2), (8, 64, 56, 64, 1, 1), (8, 64, 56, 64, 3, 1), (8, 64, 56, 256, 1, 1),
    (8, 256, 56, 128, 1, 1), (8, 128, 56, 128, 3, 2), (8, 128, 28, 512, 1, 1), (8, 256, 28, 256, 3, 2),
    (8, 256, 14, 256, 3, 1), (8, 1024, 14, 256, 1, 1), (8, 512, 7, 512, 3, 1), (8, 512, 7, 2048, 1, 1),
]  # fmt: skip
FORMS = {
    "fp32": {"dtype": "float32"},
    "fp16, channels last, bias and ReLU": {"dtype": "float16", "last": True, "activation": "relu"},
    "fp16, channels last, bias and SiLU": {"dtype": "float16", "last": True, "activation": "silu"},
}
MOST_MS = 50.0

CHILD = """
import json, sys, time
from itertools import product
import torch
from torch.nn import functional as F
import convwright as cw
from convwright.backends.cudnn.graph import listing as graph
from convwright.tuning import run
from convwright.tuning.compile_queue import compile_queue

counts = {"planned": 0, "searched": 0}
def counted(module, name, what):
    own = getattr(module, name)
    def wrapper(*arguments, **options):
        counts[what] += 1
        return own(*arguments, **options)
    setattr(module, name, wrapper)
counted(graph, "proposed_engines", "planned")
counted(run, "measure_candidates", "searched")

device, layers, forms, calls = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
served = json.loads(sys.argv[5])  # by PyTorch's own functions, which are called for these alone; null: ours are
ours = served is None
torch.backends.cudnn.allow_tf32 = False
synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
# What a process loads once: cuDNN's libraries, which differ by dtype, layout and filter, and this package's modules.
for kind in (torch.float32, torch.float16):
    for channels, taps, memory in product((8, 64), (1, 3), (torch.contiguous_format, torch.channels_last)):
        sizes = (2, channels, 30, 30), (128, channels, taps, taps), (128,)
        x, w, b = (torch.zeros(size, device=device, dtype=kind) for size in sizes)
        x, w = x.to(memory_format=memory), w.to(memory_format=memory)
        F.conv2d(x, w, b)
        if device == "cuda":
            torch.cudnn_convolution_relu(x, w, b, (1, 1), (0, 0), (1, 1), 1)
cw.conv2d(x, w, b)
cw.plan("ic8ih9oc8kh3", algorithm="cudnn/engine-0" if device == "cuda" else "reference/gemm", device=device)
synchronize()

kept = []  # as a model keeps its weights: one that takes the place of another in memory would be taken for it

def call(form, layer):
    n, c, size, k, taps, stride = layer
    kind = {"device": device, "dtype": getattr(torch, form["dtype"])}
    memory = torch.channels_last if form.get("last") else torch.contiguous_format
    x = torch.randn(n, c, size, size, **kind).to(memory_format=memory)
    w = torch.randn(k, c, taps, taps, **kind).to(memory_format=memory)
    b = torch.randn(k, **kind) if "activation" in form else None
    kept.append((x, w, b))
    synchronize()
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        window = {"stride": stride, "padding": taps // 2}
        if ours:
            cw.conv2d(x, w, b, **window, activation=form.get("activation"))
        else:
            y = F.conv2d(x, w, b, **window)
            if b is not None:
                getattr(F, form["activation"])(y)
        synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
        if calls > 1:
            compile_queue().wait_for_all()
    return times[0], cw.last_choice().candidate.id if ours else "torch/default"

with torch.no_grad():
    for name, form in forms.items():
        for layer in layers:
            if not ours and [name, layer] not in served:
                print(json.dumps({"form": name, "layer": layer, "first_ms": 0.0, "choice": None}))
                continue
            before = dict(counts)
            first_ms, choice = call(form, layer)
            print(json.dumps({"form": name, "layer": layer, "first_ms": first_ms, "choice": choice,
                              **{what: counts[what] - before[what] for what in counts}}))
"""


def child(device: str, calls: int, store: Path, served: list[list[Any]] | None = None) -> list[dict[str, Any]]:
    # Modules are compiled once, as those of a package that was installed.
    environment = {**os.environ, "CONVWRIGHT_STORE": str(store), "PYTHONPYCACHEPREFIX": str(store.parent / "modules")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    given = (json.dumps(each) for each in (LAYERS, FORMS, calls, served))
    command = [sys.executable, "-c", CHILD, device, *given]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def main() -> None:
    import torch

    from convwright.measuring.conditions import conditions
    from convwright.measuring.hardware.machine import device_facts

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "findings.sqlite"
        # The second call of a layer searches, the third takes what was compiled meanwhile.
        first, second = child(options.device, 6, store), child(options.device, 1, store)
        served = [[each["form"], each["layer"]] for each in second if each["choice"].startswith("torch/default")]
        torchs = child(options.device, 1, store, served)
    known, lines = dict(conditions(device_facts(options.device))), list[dict[str, Any]]()
    for one, two, own in zip(first, second, torchs, strict=True):
        same = one["choice"] == two["choice"] and not two["planned"] and not two["searched"]
        two["torch_first_ms"] = own["first_ms"]
        held = same and two["first_ms"] - own["first_ms"] <= MOST_MS
        lines.append({"benchmark": "second process", "first": one, "second": two, "held": held, "conditions": known})
        print(f"{one['form']:36} {one['layer']!s:28} {two['choice'][:58]:58} {two['first_ms']:7.2f} ms",
              f"(PyTorch {own['first_ms']:7.2f})", "" if held else f"NOT HELD: {one['choice']}")  # fmt: skip
    times = sorted(line["second"]["first_ms"] for line in lines)
    ours = max(line["second"]["first_ms"] - line["second"]["torch_first_ms"] for line in lines)
    held = sum(line["held"] for line in lines)
    print(f"{held} of {len(lines)} held; first calls {times[0]:.2f} to {times[-1]:.2f} ms,", end=" ")
    print(f"without PyTorch's own where it serves {ours:.2f} at most")
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
