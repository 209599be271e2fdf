"""The same problems found in two processes: the same choices, the second without measuring.

python benchmarks/two_processes.py [--out results.jsonl]
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

PROBLEMS = [
    "mb32ic256ih14oc256kh3ph1",
    "mb1ic50ih512oc1kh3ph5dh4",
    "mb32ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb8ic64ih28oc64kh3ph1 dir:backward_data",
    "mb8ic64ih28oc64kh3ph1 dir:backward_weight",
]
CPU_PROBLEMS = ["mb1ic16ih32oc16kh3ph1", "mb2ic8ih28oc16kh5ph2 ep:bias+relu", "mb1ic16ih32oc16kh3ph1 dir:backward_data"]

CHILD = """
import json, sys, time
import torch
import convwright as cw
from convwright.tuning import run as module
real, count = module.measure_candidates, 0
def counted(*arguments, **options):
    global count
    count += 1
    return real(*arguments, **options)
module.measure_candidates = counted
torch.backends.cudnn.allow_tf32 = False
for problem in json.loads(sys.argv[1]):
    count, start = 0, time.perf_counter()
    choice = cw.find(problem, mode=sys.argv[2]).choice
    print(json.dumps({"problem": problem, "choice": choice.candidate.id, "searches": count,
                      "seconds": time.perf_counter() - start}))
"""


def child(problems: list[str], mode: str, store: Path) -> list[dict[str, Any]]:
    """What one process finds."""
    environment = {**os.environ, "CONVWRIGHT_STORE": str(store)}
    command = [sys.executable, "-c", CHILD, json.dumps(problems), mode]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def main() -> None:
    import torch

    from convwright.measuring.conditions import conditions
    from convwright.measuring.hardware.machine import device_facts

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mode", default="quick")
    options = parser.parse_args()
    problems = PROBLEMS if torch.cuda.is_available() else CPU_PROBLEMS
    with tempfile.TemporaryDirectory() as folder:
        first, second = (child(problems, options.mode, Path(folder) / "findings.sqlite") for _ in range(2))
    known = dict(conditions(device_facts()))
    lines = []
    for one, two in zip(first, second, strict=True):
        same = one["choice"] == two["choice"] and two["searches"] == 0 and one["searches"] > 0
        lines.append({"benchmark": "two processes", "first": one, "second": two, "same": same, "conditions": known})
        print(f"{one['problem']:58} {one['choice']:52} {one['seconds']:6.2f} s, then {two['seconds']:6.2f} s",
              "same, not measured again" if same else f"DIFFERS: {two}")  # fmt: skip
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sys.exit(0 if all(line["same"] for line in lines) else 1)


if __name__ == "__main__":
    main()
