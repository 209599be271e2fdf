"""The choice for each problem of a suite, timed anew in a process that knows only the store, beside PyTorch's calls.

    python benchmarks/suite_choices.py deepbench --direction forward --tf32 off --rows 0:94 [--out results.jsonl]
    python benchmarks/suite_choices.py zoo-sample --dtype fp16,bf16 --layout nhwc --batch 1,32 --epilogue bias+relu \\
        --beside default,compile --weights constant

Three processes take part. One compiles kernels for the rows to come, for which a suite of few rows waits by
``--wait-s``, and ahead of its first row longer, since compilers have to be loaded. One searches, within ``--budget-s``
a row, and keeps what it finds in a store. The third knows nothing but that store: it takes new inputs, and times the
choice interleaved with the calls of PyTorch's that ``--beside`` names (see `torch_calls`). On a GPU it is device time,
all sides alike replayed from CUDA graphs; while one process times, the one that searches waits. Where weights change,
what packs them is a part of the choice's call, as the layout conversions of a candidate are in any case. The errors of
all sides are taken on the same inputs. With its flag ``benchmark`` on PyTorch takes algorithms that spread an infinity
over numbers, which none may that is chosen here, but with ``--finite-inputs``: where the error rule objects to what it
took, the row says so, and the choice is held against the best of the others.

What ``compile`` needs is compiled before that, in several processes whose autotuning disturbs one another: these leave
their compiled kernels on disk and nothing else, so that the third process chooses among those anew, by itself.

A row is a line of the file as soon as it is known. After ``--limit-s`` no other row is begun, and what is missing is
said; ``--resume`` leaves out the rows that are there. ``--read`` prints the summary of such files.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any

import torch
from common import kernels_ahead, torch_calls
from common.asked_rows import Asked, picked, rows
from common.choices_summary import missing, summary, told
from common.chosen_calls import call_of
from common.pace import Pace
from common.retiming import OURS, attempts, narrowest
from common.stages import Answer, Stage, serve, serve_saying
from common.torch_autotuning import Autotuners, caches

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.finding import KindError
from convwright.core.limits import limits
from convwright.core.policy import Objective, Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.eager.decision import choices_for
from convwright.measuring.cache import Cache
from convwright.measuring.checking.data import Kind, kinds_of, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines
from convwright.store.store import Store
from convwright.tuning.choose import Verdict
from convwright.tuning.worker import Say

# Not the seed of any search.
SEED = 20261121
NARROW = 0.005
# Of a search's table, to be seen where a choice is in doubt.
_SHOWN = 8
_ROWS_AT_ONCE = 3
# Within which compilers have loaded what they need, beside all else that begins; until then no row has a kernel.
_LOADING_S = 30.0
# A row takes some seconds: one that says nothing for so long hangs.
PATIENCE_S = 120.0


def flagged(question: Answer) -> ConvProblem:
    """The problem, with PyTorch's flag as it is to be while it is computed."""
    if question["tf32"] is not None:
        torch.backends.cudnn.allow_tf32 = question["tf32"]
    return ConvProblem.parse(question["problem"])


def policy(options: argparse.Namespace) -> Policy:
    return Policy(objective=Objective.DEVICE_TIME, weights=options.weights, finite_inputs=options.finite_inputs)


def compiling(options: argparse.Namespace, say: Say, question: Answer) -> Answer:
    """The first process: kernels of the rows in their order, for as long as it is let; it says each row."""
    device = device_facts(options.device)

    one_flag = Lock()

    def compiled(asked: Asked) -> Answer:
        with one_flag:
            kernels = kernels_ahead.kernels_of(flagged(asked.question), device, policy(options))
        kernels_ahead.compile_kernels(kernels[: options.kernels], device)
        return asked.question

    # A row whose slowest kernel takes long leaves processors idle, to which the next rows' kernels go.
    with ThreadPoolExecutor(_ROWS_AT_ONCE) as threads:
        for row in threads.map(compiled, rows(options)):
            say(row)
    return {}


def wait_for_kernels(asked: Asked, compiler: Stage, wait_s: float) -> None:
    """Until those of a row are compiled, or for so long."""
    end_s = perf_counter() + wait_s
    while wait_s > 0 and perf_counter() < end_s:
        if compiler.hear(patience_s=end_s - perf_counter()) in (asked.question, None):
            return


def searched(options: argparse.Namespace, question: Answer) -> Answer:
    """The second process: find, and leave what was found in the store."""
    problem = flagged(question)
    _load(problem.direction, problem.dtype, options.device)
    begun_s = perf_counter()
    found = cw.find(
        problem, device=options.device, policy=policy(options), mode=options.mode,
        budget_us=options.budget_s * 1e6,
    )  # fmt: skip
    released(options)
    chosen = None if found.choice is None else found.choice.candidate.id
    return {
        "searched": chosen, "search_s": perf_counter() - begun_s, "unstable": found.unstable,
        "table": [_entry(verdict) for verdict in found.verdicts[:_SHOWN]],
        "unmeasured": Counter(v.reason for v in found.verdicts if v.finding.measurement is None).most_common(_SHOWN),
    }  # fmt: skip


@cache
def _load(direction: Direction, dtype: DType, device: str) -> None:
    """Search for something tiny: what libraries load once, which takes them a second, is no row's own."""
    tiny = ConvProblem.parse(f"mb2ic8ih12oc8kh3ph1 dir:{direction} dt:{dtype}")
    cw.find(tiny, device=device, mode="full", budget_us=1e6, store=Store.open(None))


def _entry(verdict: Verdict) -> Answer:
    """One candidate of a search."""
    measured = verdict.finding.measurement
    time_us = None if measured is None else asdict(measured.device_us)
    return {"id": verdict.finding.candidate.id, "us": time_us, "reason": verdict.reason}


@torch.no_grad()
def retimed(options: argparse.Namespace, question: Answer) -> Answer:
    """The third process: new inputs, and nothing known but the store."""
    begun_s, problem, device = perf_counter(), flagged(question), device_facts(options.device)
    choice = choices_for(problem, device, policy(options), None).captured
    given = operands(problem, Kind.NORMAL, options.device, seed=SEED)
    calls = {OURS: call_of(choice, problem, given, Weights(options.weights))}
    calls |= torch_calls.calls(options.beside, problem, given)
    reference = sampled_reference(problem, given)
    errors = {name: errors_of(call(), reference) for name, call in calls.items()}
    objections = wrong_calls(problem, options)
    ready_s = perf_counter()
    take = partial(
        measure_together, calls, device=options.device, budget_us=options.time_s * 1e6, seed=SEED, cache=options.cache
    )
    taken = attempts(take, narrow=NARROW, wrong=objections)
    best = narrowest(taken)
    timings = best.timings
    answer = {
        "choice": choice.candidate.id, "arithmetic": choice.candidate.arithmetic,
        "workspace_bytes": choice.plan().workspace_bytes, "limit_us": limits(choice.candidate, device).limit_us,
        "times_us": {name: asdict(timing.call_us) for name, timing in timings.items()},
        "errors": {name: {"relative_l2": l2, "scaled_max": most} for name, (l2, most) in errors.items()},
        "objections": objections,
        "ratios": {name: verdict.to_json() for name, verdict in best.verdicts.items()},
        "best": best.best, "ratio": asdict(best.verdict.ratio), "outcome": best.verdict.outcome,
        "attempts": len(taken), "samples": timings[OURS].samples,
        "unstable": next((each.unstable for each in timings.values() if each.unstable), None),
        "preparing_s": ready_s - begun_s, "timing_s": perf_counter() - ready_s,
        "conditions": dict(timings[OURS].conditions),
    }  # fmt: skip
    del calls, given, reference
    released(options)
    return answer


def wrong_calls(problem: ConvProblem, options: argparse.Namespace) -> dict[str, str]:
    """What the error rule has against another call of PyTorch's than its own, by the call's name."""
    if "benchmark" not in options.beside:
        return {}
    names, kinds = ("default", "benchmark"), kinds_of(problem, (Kind.NORMAL, Kind.CHANNEL_SCALED, Kind.INFINITY))
    errors: dict[str, list[KindError]] = {name: [] for name in names}
    for kind in kinds:
        given = operands(problem, kind, options.device, seed=SEED)
        reference = sampled_reference(problem, given)
        for name, call in torch_calls.calls(names, problem, given).items():
            errors[name].append(KindError(kind.value, *errors_of(call(), reference)))
    objection = error_objection(problem, errors["benchmark"], errors["default"], policy(options))
    return {} if objection is None else {"benchmark": objection}


def compiled(options: argparse.Namespace, question: Answer) -> Answer:
    """What ``torch.compile`` makes of a row, for the kernels that this leaves on disk."""
    problem = flagged(question)
    with torch.no_grad():
        torch_calls.calls(["compile"], problem, operands(problem, Kind.NORMAL, options.device, seed=SEED))
    released(options)
    return {}


def released(options: argparse.Namespace) -> None:
    """Leave the device's memory to the other process."""
    if options.device.startswith("cuda"):
        torch.cuda.synchronize(options.device)
        torch.cuda.empty_cache()


def everything(options: argparse.Namespace) -> None:
    """All rows for which there is time, and what they come to."""
    pace, lines = Pace(options.limit_s), None if options.out is None else Lines(options.out)
    kept = lines.read() if lines is not None and options.resume else []
    alike = [
        line for line in kept
        if (line.get("finite_inputs", False), line.get("cache", Cache.HOT)) == (options.finite_inputs, options.cache)
    ]  # fmt: skip
    known = {(line["name"], line["problem"], line["tf32"]) for line in alike if line["failure"] is None}
    wanted = [asked for asked in rows(options) if asked.key not in known]
    done: list[Asked] = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        store = options.store or where / "findings.sqlite"
        environment = {"CONVWRIGHT_STORE": str(store)}
        if "compile" in options.beside:
            environment |= caches(where, "inductor")
            with Autotuners(where, environment) as tuners:
                tuners.compile([asked.question for asked in wanted], until_s=perf_counter() + options.limit_s / 2)
        # Nothing is measured in the process that times, but by its timer.
        retimer = Stage("retime", environment | {"CONVWRIGHT_MODE": "heuristic"})
        with Stage("compile", environment) as compiler, Stage("search", environment) as searcher, retimer:
            compiler.begin({})
            for asked in pace.rows(wanted):
                loading_s = _LOADING_S if options.wait_s and not done else 0.0
                wait_for_kernels(asked, compiler, options.wait_s + loading_s)
                line = one(asked, searcher, retimer, options, pace)
                kept.append(line)
                done.append(asked)
                if lines is not None:
                    lines.add(line)
                print(told(line), flush=True)
    print(summary(kept))
    if len(done) < len(wanted):
        print(missing(options.suite, wanted[len(done) :]))


def one(asked: Asked, searcher: Stage, retimer: Stage, options: argparse.Namespace, pace: Pace) -> Answer:
    """The line of one row."""
    line = {
        "benchmark": "suite choices", "suite": options.suite, "index": asked.index, "name": asked.name,
        "problem": asked.problem.key, "batch": asked.batch, "tf32": asked.tf32,
        "beside": options.beside, "weights": options.weights, "finite_inputs": options.finite_inputs,
        "search_mode": options.mode, "budget_s": options.budget_s, "wait_s": options.wait_s,
        "seed": SEED, "cache": options.cache,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    most_s = PATIENCE_S + 5 * options.budget_s
    found = searcher.ask(asked.question, patience_s=pace.patience_s(most_s))
    if found.get("failure"):
        # What a candidate took down with it is known by now, and left alone by a new process.
        found = searcher.ask(asked.question, patience_s=pace.patience_s(most_s))
    search_unstable = found.pop("unstable", None)
    if not found.get("failure"):
        found |= {"search_unstable": search_unstable} | retimer.ask(asked.question, patience_s=pace.patience_s(most_s))
    return {**line, "failure": None, **found}


STAGES = {"search": searched, "retime": retimed, "torch-compile": compiled}


def _one_of(*known: str) -> Any:
    def parse(text: str) -> Sequence[str]:
        words = text.split(",")
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"known are {', '.join(known)}, got {', '.join(unknown)}")
        return words

    return parse


def _flags(text: str) -> list[bool]:
    return [word == "on" for word in _one_of("on", "off")(text)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", nargs="?", default="deepbench", help="a suite's name or file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--direction", type=_one_of(*Direction), default=["forward"], help="several with commas between"
    )
    parser.add_argument("--tf32", type=_flags, default=[False, True], help="off,on: for fp32 on a GPU")
    parser.add_argument("--dtype", type=_one_of(*DType), default=["fp32"], help="or several")
    parser.add_argument("--layout", help="nchw or nhwc")
    parser.add_argument("--batch", type=lambda text: [int(word) for word in text.split(",")], default=[None])
    parser.add_argument(
        "--epilogue", type=lambda text: text.split(","), default=[None], help="for example bias+relu; or several"
    )
    parser.add_argument("--beside", type=_one_of(*torch_calls.NAMES), default=["default", "benchmark"])
    parser.add_argument("--weights", default="changing", choices=tuple(Weights))
    parser.add_argument("--cache", default=Cache.HOT.value, choices=(Cache.HOT, Cache.COLD), help="while timing")
    parser.add_argument("--finite-inputs", action="store_true", help="allow what spreads infinities")
    parser.add_argument("--mode", default="full", help="of the search")
    parser.add_argument("--budget-s", type=float, default=1.0, help="for the search of a row")
    parser.add_argument("--kernels", type=int, default=24, help="compiled ahead of a row's search at most")
    parser.add_argument("--wait-s", type=float, default=0.0, help="for a row's kernels at most, ahead of its search")
    parser.add_argument("--time-s", type=float, default=0.3, help="for timing a row, three times that where need be")
    parser.add_argument("--rows", type=picked, default=slice(None), help="from:to, from:to:step, or names")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no row after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--store", type=Path, help="findings that are to be kept; by default they are thrown away")
    parser.add_argument("--read", type=Path, nargs="+", help="print the summary of these files, and run nothing")
    parser.add_argument("--stage", choices=("compile", *STAGES), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.read:
        print(summary([line for path in options.read for line in Lines(path).read()]))
    elif options.stage == "compile":
        serve_saying(partial(compiling, options))
    elif options.stage:
        serve(partial(STAGES[options.stage], options))
    else:
        everything(options)


if __name__ == "__main__":
    main()
