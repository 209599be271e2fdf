"""What cuDNN plans for a device from its record, beside what it plans for it live: engines, knobs, workspaces.

    python benchmarks/planned_lists.py [--out results.jsonl]

Needs the live device of a profile. Each line is one problem: engines and knobs of either list that the other has not,
whether those of both come in the same order, and the workspaces that differ, (planned, live), in bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from convwright.backends.cudnn.graph import listing as graph
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile_for
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts

SIZES = [
    "mb32ic64ih56oc64kh3ph1",
    "mb32ic256ih14oc256kh3ph1",
    "mb32ic256ih14oc1024kh1",
    "mb8ic3ih224oc64kh7sh2ph3",
    "g32mb8ic32ih112oc32kh3ph1",
    "mb1ic128ih128oc128kh11ph5",
    "mb4ic64iw100oc64kw3pw1",
    "mb1ic16id16ih32iw32oc16kd3kh3kw3pd1ph1pw1",
]
FORMS = [
    "dt:fp32",
    "dt:fp32 tag:nhwc",
    "dt:fp16 tag:nhwc",
    "dt:bf16 tag:nhwc ep:bias+relu",
    "dt:fp16 tag:nhwc dir:backward_data",
    "dt:fp32 dir:backward_weight",
]


def listed(problem: ConvProblem, device: DeviceFacts) -> dict[str, int | None]:
    offers = graph.candidates(problem, device, Policy())
    return {offer.id: offer.workspace_bytes for offer in offers if isinstance(offer, Candidate)}


def compared(text: str, elsewhere: DeviceFacts, live: DeviceFacts) -> dict[str, Any]:
    problem = ConvProblem.parse(text)
    planned, here = listed(problem, elsewhere), listed(problem, live)
    differ = {name: (planned[name], here[name]) for name in planned if name in here and planned[name] != here[name]}
    return {
        "benchmark": "planned lists",
        "problem": problem.key,
        "planned": len(planned),
        "live": len(here),
        "only_planned": [name for name in planned if name not in here],
        "only_live": [name for name in here if name not in planned],
        "same_order": [name for name in here if name in planned] == [name for name in planned if name in here],
        "workspaces_differ": differ,
        "differ_without_clusters": [name for name in differ if "k28=" not in name],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    elsewhere = profile_for(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    if elsewhere is None:
        sys.exit("this compares a profile with its live device, and there is none here")
    live, lines = device_facts("cuda"), []
    for size in SIZES:
        for form in FORMS:
            line = compared(f"{size} {form}", elsewhere, live)
            lines.append(line | {"conditions": dict(conditions(live))})
    for name in ("only_planned", "only_live", "workspaces_differ", "differ_without_clusters"):
        print(f"{name:24}", sum(len(line[name]) for line in lines))
    print("in the same order       ", sum(line["same_order"] for line in lines), "of", len(lines), "problems")
    print("planned, live engines   ", sum(line["planned"] for line in lines), sum(line["live"] for line in lines))
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
