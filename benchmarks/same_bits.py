"""One saved engine in many processes, on all GPUs of a host: whether each computes the same bits.

    python benchmarks/same_bits.py [--network resnet18] [--dtype fp16] [--processes 10] [--out results.jsonl]

The engine is built with `Policy(deterministic=True)`. Each process loads it, runs it twice on the same input and prints
a digest of the outputs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from enable_models import network
from whole_networks import DTYPES, settled

import convwright as cw
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store

CHILD = """
import hashlib, sys
import torch
import convwright as cw
torch.cuda.set_device(int(sys.argv[2]))
engine, x = cw.load(sys.argv[1], f"cuda:{sys.argv[2]}"), torch.load(sys.argv[1] + "/../x.pt").cuda()
first, second = engine(x).cpu(), engine(x).cpu()
assert torch.equal(first, second)
print(hashlib.sha256(first.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--dtype", choices=DTYPES, default="fp16")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--processes", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    made, shape, versions = network(options.network)
    model = settled(made.cuda(), (2, *shape)).to(DTYPES[options.dtype])
    x = torch.randn(options.batch, *shape, device="cuda", dtype=DTYPES[options.dtype])
    with TemporaryDirectory() as place:
        engine = cw.optimize(model, x, policy=cw.Policy(deterministic=True), store=Store.open(None))
        engine.save(Path(place) / "engine")
        torch.save(x.cpu(), Path(place) / "x.pt")
        command = [sys.executable, "-c", CHILD, str(Path(place) / "engine")]
        children = [
            subprocess.Popen([*command, str(number % torch.cuda.device_count())], stdout=subprocess.PIPE, text=True)
            for number in range(options.processes)
        ]
        digests = [child.communicate()[0].strip() for child in children]
    row = {
        "benchmark": "same bits", "network": options.network, "dtype": options.dtype, "batch": options.batch,
        "gpus": torch.cuda.device_count(), "digests": digests, "versions": versions,
        "conditions": dict(conditions(device_facts("cuda"))),
    }  # fmt: skip
    print(f"{len(set(digests))} different results of {len(digests)} processes on {row['gpus']} GPUs: {set(digests)}")
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
