"""Every algorithm for every problem of the suite `gtc`, as the talk's tables have them: times, workspaces, errors.

    python benchmarks/gtc.py [--out results.jsonl] [--budget-s 5] [--rows 0:7] [--limit-s 560]

One full search a problem, layout and setting (TF32 off, TF32 on, fp16), in a process beside this one, for the least
time of the device with weights that do not change; nothing is taken from a store. A line holds one of them: each
algorithm by its fastest configuration, and what was refused and why. `tables.py` makes docs/gtc.md of the record. After
``--limit-s`` no other search is begun; ``--resume`` goes on.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

import torch
from common.pace import Pace, sliced
from common.stages import Answer, Stage, serve

import convwright as cw
from convwright import suites
from convwright.core.candidate import Candidate
from convwright.core.policy import Objective, Policy, Weights
from convwright.measuring.conditions import conditions
from convwright.report.benchmarks.lines import Lines
from convwright.store.store import Store
from convwright.tuning.choose import Verdict

# By name the dtype, and PyTorch's flag where it plays a part.
SETTINGS: dict[str, tuple[str, bool | None]] = {
    "TF32 off": ("fp32", False),
    "TF32 on": ("fp32", True),
    "fp16": ("fp16", None),
}
LAYOUTS = ("nchw", "nhwc")
_CONFIGURATION = re.compile(r"\[[^]]*\]")
_FINITE = ("normal", "positive", "channel-scaled", "large")


def questions(options: argparse.Namespace) -> Iterator[Answer]:
    suite = suites.load(options.suite)
    for row, setting, layout in product(suite.rows[options.rows], options.settings, LAYOUTS):
        dtype, tf32 = SETTINGS[setting]
        problem = suite.with_(dtype=dtype, layout=layout).rows[suite.rows.index(row)].problem
        yield {"name": row.name, "setting": setting, "layout": layout, "problem": problem.key, "tf32": tf32}


def searched(options: argparse.Namespace, question: Answer) -> Answer:
    """In the process beside: everything about one problem."""
    if question["tf32"] is not None:
        torch.backends.cudnn.allow_tf32 = question["tf32"]
    found = cw.find(
        question["problem"], device=options.device, mode="full", budget_us=options.budget_s * 1e6,
        policy=Policy(objective=Objective.DEVICE_TIME, weights=Weights.CONSTANT), store=Store.open(None),
    )  # fmt: skip
    baseline = None if found.baseline is None else algorithm(found.baseline.candidate)
    known = dict(conditions(found.device))
    return {
        "baseline": baseline, "choice": None if found.choice is None else found.choice.candidate.id,
        "algorithms": fastest(found.verdicts),
        "refused": {_CONFIGURATION.sub("", each.id): each.reason for each in found.refusals if is_algorithm(each.id)},
        "unstable": found.unstable, "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "conditions": known | {"mode": "full", "cache": "hot"},
    }  # fmt: skip


def is_algorithm(id_: str) -> bool:
    """Whether a name is that of an algorithm, and not of a rewrite or of something rewritten."""
    return "/" in id_ and "(" not in id_


def algorithm(candidate: Candidate) -> str:
    """A candidate's name without its configurations, and its arithmetic: two of these are two computations."""
    return f"{_CONFIGURATION.sub('', candidate.id)}, {candidate.arithmetic}"


def fastest(verdicts: Iterable[Verdict]) -> dict[str, Answer]:
    """Each algorithm by its fastest configuration; those that were not timed with the reason."""
    rows: dict[str, Answer] = {}
    for verdict in verdicts:
        name, new = algorithm(verdict.finding.candidate), _row(verdict)
        known = rows.get(name)
        if known is None or _time_us(new) < _time_us(known):
            rows[name] = new
    return dict(sorted(rows.items(), key=lambda entry: _time_us(entry[1])))


def _time_us(row: Answer) -> float:
    return float("inf") if row["time_us"] is None else float(row["time_us"]["value"])


def _row(verdict: Verdict) -> Answer:
    candidate, measured = verdict.finding.candidate, verdict.finding.measurement
    row = {
        "id": candidate.id, "deterministic": candidate.deterministic,
        "workspace_bytes": candidate.workspace_bytes, "time_us": None, "relative_l2": None, "scaled_max": None,
        "allowed": verdict.allowed, "why": verdict.reason,
    }  # fmt: skip
    if measured is None:
        return row
    normal = next((error.relative_l2 for error in measured.errors if error.kind == "normal"), None)
    scaled = max((error.scaled_max for error in measured.errors if error.kind in _FINITE), default=None)
    return row | {
        "workspace_bytes": measured.workspace_bytes, "time_us": asdict(measured.device_us), "relative_l2": normal,
        "scaled_max": scaled,
    }  # fmt: skip


def told(line: Answer) -> str:
    head = f"{line['name']:24} {line['setting']:8} {line['layout']}"
    if line["failure"]:
        return f"{head} failed: {line['failure']}"
    timed = {name: row for name, row in line["algorithms"].items() if row["time_us"] is not None}
    times = ", ".join(f"{name} {row['time_us']['value']:.1f}" for name, row in list(timed.items())[:4])
    return f"{head} {len(timed)} of {len(line['algorithms'])} timed: {times} µs"


def everything(options: argparse.Namespace) -> None:
    """All searches for which there is time."""
    pace, lines = Pace(options.limit_s), None if options.out is None else Lines(options.out)
    kept = lines.read() if lines is not None and options.resume else []
    known = {_key(line) for line in kept if line["failure"] is None}
    wanted = [question for question in questions(options) if _key(question) not in known]
    left = list(wanted)
    with Stage("search", {"CONVWRIGHT_STORE": "none"}) as searcher:
        for question in pace.rows(wanted):
            answer = searcher.ask(question, patience_s=pace.patience_s(60.0 + 5 * options.budget_s))
            line = {"benchmark": "gtc", **question, "budget_s": options.budget_s, "failure": None, **answer}
            if lines is not None:
                lines.add(line)
            print(told(line), flush=True)
            left.remove(question)
    for question in left:
        print(f"no time for {', '.join(_key(question))}")


def _key(line: Answer) -> tuple[str, ...]:
    return line["name"], line["setting"], line["layout"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", default="gtc")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--budget-s", type=float, default=5.0, help="for each search")
    parser.add_argument("--rows", type=sliced, default=slice(None), help="as a slice: from:to, from:to:step")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no search after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true", help="leave out what is in that file already")
    parser.add_argument("--stage", choices=["search"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        serve(partial(searched, options))
    else:
        everything(options)


if __name__ == "__main__":
    main()
