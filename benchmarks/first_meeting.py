"""What the first meeting with a problem costs a call: the wall time of a quick search beside its budget.

    python benchmarks/first_meeting.py [--device cpu] [--budget-ms 200] [--out results.jsonl]

Each problem is unseen: the store is an empty file of its own. What a process does once, loading libraries, is done by
a problem that is not in the table; its time is printed first. "over" is by how much the budget was overrun, "looked"
how many candidates ran, "timed" how many were timed side by side. What has to be compiled is compiled beside, as behind
a call; where there is such, "again" is what the second search took, once that was ready, and the choice is its choice.
TF32 is off, so fp32 is held to fp32.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any

import torch

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import Findings, find

FIRST = "mb1ic8ih12oc8kh3"
PROBLEMS = [
    "mb1ic16ih8oc16kh3ph1",
    "mb32ic256ih8oc256kh3ph1",
    "mb32ic256ih8oc256kh3ph1 tag:nhwc ep:bias+relu",
    "mb1ic64ih56oc64kh3ph1 ep:bias+relu",
    "mb1ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc ep:bias+relu",
    "mb1ic3ih224oc64kh7sh2ph3",
    "mb8ic64ih28oc64kh3ph1 dir:backward_data",
    "mb8ic64ih28oc64kh3ph1 dir:backward_weight",
    "g192mb8ic192ih28oc192kh7ph3",
    "mb1ic50ih512oc1kh3ph5dh4",
    "mb32ic256ih14oc1024kh1 dt:fp16 tag:nhwc",
    "mb32ic64ih112oc128kh5ph2",
]


def meet(text: str, device: DeviceFacts, budget_us: float, folder: Path) -> dict[str, Any]:
    """A quick search of a problem that nobody has seen, and another one when more is compiled."""
    problem, ready = ConvProblem.parse(text), Event()
    with Store.open(folder / f"{time.time_ns()}.sqlite") as store:

        def search() -> tuple[Findings, float]:
            begun = time.perf_counter()
            found = find(problem, device, Policy(), mode=Mode.QUICK, store=store, budget_us=budget_us, then=ready.set)
            return found, (time.perf_counter() - begun) * 1e6

        found, spent_us = search()
        again_us = None
        if compile_queue().missing(problem) and ready.wait(60):
            found, again_us = search()
    rows = [verdict.finding for verdict in found.verdicts]
    timed = {row.candidate.id: row.measurement for row in rows if row.measurement is not None}
    best, own = found.choice, found.baseline
    return {
        "benchmark": "first meeting",
        "problem": text,
        "budget_us": budget_us,
        "spent_us": spent_us,
        "again_us": again_us,
        "listed": len(rows),
        "looked": len(timed) + sum(1 for row in rows if row.note is not None and _ran(row.note)),
        "timed": len(timed),
        "choice": best.candidate.id if best is not None else None,
        "choice_us": _us(best),
        "torch_us": _us(own),
        "checked": dict(best.measurement.conditions).get("checked") if best and best.measurement else None,
        "reason": found.verdicts[0].reason,
    }


def _ran(note: str) -> bool:
    """Whether a candidate that was not timed was looked at."""
    return "first look" in note or note.startswith("was not timed")


def _us(finding: object) -> dict[str, Any] | None:
    measured = getattr(finding, "measurement", None)
    return None if measured is None else measured.to_json()["device_us"]


def _shown(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "not timed"
    return f"{figure['value']:.1f} ± {50 * (figure['high'] - figure['low']) / abs(figure['value']):.1f} % µs"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--budget-ms", type=float, default=200.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    facts, lines = device_facts(options.device), []
    known = {**dict(conditions(facts)), "load": f"{os.getloadavg()[0]:.2f}", "date": time.strftime("%Y-%m-%d")}
    with tempfile.TemporaryDirectory() as folder:
        first = meet(FIRST, facts, options.budget_ms * 1e3, Path(folder))
        print(f"{facts.key}, load {known['load']}; loading and the first problem: {first['spent_us'] / 1e3:.0f} ms")
        print(f"{'problem':52} {'budget':>6} {'spent':>6} {'over':>6} {'again':>6} {'looked':>6} {'timed':>5}  choice")
        for text in PROBLEMS:
            line = meet(text, facts, options.budget_ms * 1e3, Path(folder)) | {"conditions": known}
            lines.append(line)
            again = "–" if line["again_us"] is None else f"{line['again_us'] / 1e3:.0f}"
            spent_ms, over_ms = line["spent_us"] / 1e3, (line["spent_us"] - line["budget_us"]) / 1e3
            print(
                f"{text:52} {options.budget_ms:6.0f} {spent_ms:6.0f} {max(over_ms, 0):6.0f} "
                f"{again:>6} {line['looked']:6} "
                f"{line['timed']:5}  {line['choice']}: {_shown(line['choice_us'])}, "
                f"PyTorch {_shown(line['torch_us'])}",
                flush=True,
            )
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
