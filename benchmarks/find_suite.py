"""A full search on a few problems: what wins, by how much, and why.

    python benchmarks/find_suite.py [--out results.jsonl] [--budget-s 10]

TF32 is off, so fp32 is held to fp32. One line per problem holds the whole table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import convwright as cw
from convwright.store.store import Store

PROBLEMS = [
    "mb32ic256ih14oc256kh3ph1",
    "mb32ic256ih14oc256kh3ph1 tag:nhwc",
    "mb32ic64ih56oc64kh3ph1 tag:nhwc ep:bias+relu",
    "mb1ic128ih128oc128kh11ph5",
    "mb1ic50ih512oc1kh3ph5dh4",
    "mb32ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb32ic256ih14oc1024kh1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb32ic256ih14oc256kh3ph1 dir:backward_data",
    "mb32ic256ih14oc256kh3ph1 dir:backward_weight",
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget-s", type=float, default=10.0)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    lines = []
    for text in PROBLEMS:
        found = cw.find(text, mode="full", store=Store.open(None), budget_us=options.budget_s * 1e6)
        lines.append({"benchmark": "find", **found.to_json()})
        best, base = found.choice, found.baseline
        assert best is not None
        assert best.measurement is not None
        assert base is not None
        assert base.measurement is not None
        ours, torchs = best.measurement.device_us, base.measurement.device_us
        print(
            f"{text:56} {best.candidate.id:64} {ours.value:8.2f} ± {100 * ours.relative_halfwidth:.1f} % µs, "
            f"PyTorch {torchs.value:8.2f} ± {100 * torchs.relative_halfwidth:.1f} %: {torchs.value / ours.value:.2f}x",
            flush=True,
        )
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
