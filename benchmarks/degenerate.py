"""Every candidate of every backend on random degenerate convolutions: no crash, no hang, no wrong value.

    python benchmarks/degenerate.py --problems 20000 --workers 2 --out results.jsonl                    # on a CPU
    python benchmarks/degenerate.py --device cuda --problems 2000 --no-compiled --workers 15 --out results.jsonl
    python benchmarks/degenerate.py --device cuda --problems 200 --compiled --workers 15 --out results.jsonl
    python benchmarks/degenerate.py --only "mb1ic8ih9iw1oc1kh2kw1 dt:bf16" --algorithm torch/onednn

Candidates run in child processes, one problem and candidate at a time, so that a crash and a hang are known by the
candidate that was running; the next child continues with the one after it. Outputs and workspaces are filled with NaN
before every run, operands stand between NaN, and so does memory that a candidate allocates, as far as possible. Results
on finite data are held against float64 under the error rule (``convwright.core.error_rule``). Each crash, hang, wrong
value and exception is printed with the command that reproduces it, and the exit status is 1 if there is any. A
candidate that cannot be built or run, and says so by an error of convwright's own, is counted as failed. ``--for``
starts no more problems once so many seconds have passed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from common.degenerate_problems import problems
from common.few_tiles import few_tiles
from common.stages import Answer, Stage, serve
from torch import Tensor

from convwright import flags
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.error_bound import exact_bound, rare_roundings, scaled_bound
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import ConvwrightError, first_line
from convwright.measuring.checking.data import NON_FINITE_KINDS, Kind
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.reference import Reference
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.search import resolved
from convwright.tuning.trials.trial import Bench, Trial

# A problem is listed by a child that may have to import and load everything first.
STARTING_S = 180.0
# Kinds of data: the finite ones tell wrong values, and NaN is what a candidate may trip over.
KINDS = (Kind.NORMAL, Kind.CHANNEL_SCALED, Kind.LARGE, Kind.NAN)
# A child gives way to a new one from time to time: libraries keep something of each problem.
PROBLEMS_OF_A_CHILD = 1000
# What multiplies less often than the problem says may lose so much of a result, beside its scale, and is not wrong.
SAVING = 1e-2
# What says that it multiplies as often, and still loses no more, is imprecise.
IMPRECISE = 1e-4
# Roundings of an epilogue that is not fused: a sum, a bias, a residual.
UNFUSED = 3
# So much memory of each size is filled with NaN and given back before a run: what a library then allocates is no zero.
_SPOILED_BYTES = (512, 4096, 32768, 262144)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--compiled", action=argparse.BooleanOptionalAction, default=True, help="kernels to be compiled"
    )
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="end after so many seconds")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds that one candidate may take")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", help="this problem instead of random ones; may be repeated")
    parser.add_argument("--algorithm", help="this candidate alone")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        with flags.tf32(False):
            serve(Child(options.device, compiled=options.compiled, only=options.algorithm))
        return
    drawn = options.only or [p.key for p in islice(problems(options.seed), options.problems)]
    campaign = Campaign(options.device, options.deadline, options.seconds)
    campaign.run(drawn, options.workers)
    report = campaign.report
    if options.out is not None:
        known = {
            "benchmark": "degenerate", "seed": options.seed, "compiled": options.compiled,
            "conditions": dict(conditions(device_facts(options.device))),
        }  # fmt: skip
        options.out.write_text("".join(json.dumps(line) + "\n" for line in report.lines(known)))
    print(report.summary())
    sys.exit(bool(report.found))


class Child:
    """What a child process answers: the candidates of a problem, and what is to be said against one of them."""

    def __init__(self, device: str, *, compiled: bool, only: str | None) -> None:
        self._facts = device_facts(device)
        self._compiled, self._only = compiled, only
        self._subject = lru_cache(maxsize=1)(self._made)

    def __call__(self, question: Answer) -> Answer:
        subject = self._subject(question["problem"])
        if "candidate" not in question:
            return {"candidates": [*subject.candidates], "refused": subject.refused}
        candidate = subject.candidates[question["candidate"]]
        try:
            said = subject.objection(candidate)
        except ConvwrightError as error:
            return {"failed": f"{type(error).__name__}: {first_line(error)}"}
        return {"objection": said}

    def _made(self, text: str) -> Subject:
        problem = ConvProblem.parse(text)
        policy = resolved(Policy(), problem, self._facts)
        offers = [*listing.direct(problem, self._facts, policy), *listing.rewritten(problem, self._facts, policy)]
        listed = listing.candidates(offers)
        if self._only is not None:
            chosen = [each for each in listed if each.id == self._only]
        else:
            tried = (each for each in listed if self._compiled or not each.leaf.compiles)
            chosen = few_tiles(
                each for each in tried if (each.workspace_bytes or 0) <= (policy.max_workspace_bytes or 0)
            )
        return Subject(problem, self._facts, chosen, len(offers) - len(listed))


class Subject:
    """A problem with its candidates by id, and what they are checked on."""

    def __init__(self, problem: ConvProblem, device: DeviceFacts, candidates: list[Candidate], refused: int) -> None:
        self.candidates = {candidate.id: candidate for candidate in candidates}
        self.refused = refused
        self._bench = Bench(problem, device, Mode.FULL, seed=1)
        # Large data makes dy so small that an epilogue of its own rounds it to fewer bits.
        kinds = [kind for kind in KINDS if kind is not Kind.LARGE or not has_extended_epilogue(problem)]
        self._check = ErrorCheck(problem, self._bench.device, kinds=kinds, seed=1, reference=self._remembered)
        self._references: list[Reference] = []  # one for each kind of data, in their order

    def _remembered(self, problem: ConvProblem, tensors: Mapping[Role, Tensor]) -> Reference:
        self._references.append(Reference.of(problem, tensors))
        return self._references[-1]

    def objection(self, candidate: Candidate) -> str | None:
        """What is wrong with a candidate's results, or None."""
        trial, results = Trial(candidate, self._bench), list[Tensor]()

        def run(given: dict[Role, Tensor]) -> Tensor:
            spoil_freed(self._bench.device)
            results.append(trial.run(given))
            if self._bench.device.type == "cuda":
                torch.cuda.synchronize(self._bench.device)
            return results[-1]

        errors = self._check.errors(run)
        allowed = bound(candidate)
        for error, result, reference in zip(errors, results, self._references, strict=True):
            if error.kind in NON_FINITE_KINDS or error.scaled_max <= allowed:
                continue
            # What has the range of fp16 is right on normal data alone; the error rule refuses it on other data.
            if copies_into_fp16(candidate) and error.kind != Kind.NORMAL:
                continue
            # A search refuses what is less precise than it says; wrong is what loses more than that.
            if lost(result, reference) <= (SAVING if candidate.leaf.saves_products else IMPRECISE):
                continue
            return f"scaled error {error.scaled_max:.2g}, at most {allowed:.2g} is right, on {error.kind} data"
        return None


def lost(result: Tensor, reference: Reference) -> float:
    """The error of a whole result beside its scale."""
    got = reference.sample.take(reference.role, result.detach()).double()
    return float((got - reference.y64).norm() / reference.scale.norm())


def spoil_freed(device: torch.device) -> None:
    """Fill memory with NaN and give it back, for whoever allocates next and reads what nobody wrote."""
    made = [torch.empty(size // 4, device=device).fill_(torch.nan) for size in _SPOILED_BYTES for _ in range(4)]
    made.clear()


def bound(candidate: Candidate) -> float:
    """The largest scaled error that is no fault: what roundings explain, as often as a policy lets it exceed
    PyTorch's."""
    problem = candidate.problem
    if problem.dtype.value == "int8":
        return exact_bound(problem)
    activation = problem.epilogue.activation if problem.direction is Direction.FORWARD else Activation.NONE
    roundings = rare_roundings(problem) + (UNFUSED if problem.epilogue else 0)
    # An engine that copies fp32 into fp16 first rounds as many bits off as TF32 does.
    arithmetic = Arithmetic.TF32 if copies_into_fp16(candidate) else candidate.arithmetic
    explained = scaled_bound(
        arithmetic, problem.output.dtype, problem.reduction, activation, roundings=roundings
    )  # fmt: skip
    return Policy().max_error * explained


def copies_into_fp16(candidate: Candidate) -> bool:
    halves = (Arithmetic.FP16_ACC32, Arithmetic.FP16_ACC16)
    return candidate.problem.dtype is DType.FP32 and candidate.arithmetic in halves


@dataclass(frozen=True, slots=True)
class Fault:
    """What was found: a crash, a hang, a wrong value or an exception."""

    kind: str
    problem: str
    candidate: str
    said: str


@dataclass(slots=True)
class Report:
    """What was run and what was found, by threads that each know one child."""

    device: str
    problems: int = 0
    refused: int = 0
    families: dict[str, Counter[str]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    found: list[Fault] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def listed(self, answer: Answer) -> None:
        with self._lock:
            self.problems += 1
            self.refused += answer["refused"]

    def tried(self, problem: str, candidate: str, answer: Answer) -> None:
        fault = _fault(problem, candidate, answer)
        family = _family(candidate)
        with self._lock:
            counts = self.families.setdefault(family, Counter())
            counts["run"] += 1
            if "failed" in answer:
                counts["failed"] += 1
                self.failures[f"{family}: {answer['failed']}"] += 1
            if fault is not None:
                counts[fault.kind] += 1
                self.found.append(fault)
                print(f"{fault.kind.upper()}: {fault.said}\n    {self.reproducing(fault)}", flush=True)

    def reproducing(self, fault: Fault) -> str:
        only = shlex.quote(fault.problem)
        algorithm = "" if fault.candidate == LISTING else f" --algorithm {shlex.quote(fault.candidate)}"
        return f"python benchmarks/degenerate.py --device {self.device} --only {only}{algorithm}"

    def lines(self, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The lines of a file of results."""
        yield known | {"problems": self.problems, "refused": self.refused, "faults": len(self.found)}
        for family, counts in sorted(self.families.items()):
            yield {"family": family, **counts}
        for failure, count in self.failures.most_common():
            yield {"failed": failure, "times": count}
        for fault in self.found:
            yield asdict(fault)

    def summary(self) -> str:
        total = sum((counts for counts in self.families.values()), Counter[str]())
        rows = [
            f"{family:44} " + " ".join(f"{name} {count}" for name, count in counts.items())
            for family, counts in sorted(self.families.items())
        ]
        kinds = Counter(fault.kind for fault in self.found)
        found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing wrong"
        return "\n".join(
            [*rows, f"{self.problems} problems, {total['run']} candidates run, {self.refused} refused: {found}"]
        )


LISTING = "the list of candidates"


def _fault(problem: str, candidate: str, answer: Answer) -> Fault | None:
    """What an answer says, or that there was none, if that is a fault."""
    failure = answer.get("failure")
    if failure is not None:
        kind = "hang" if "did not answer" in failure else "crash" if failure.startswith("its process") else "exception"
        return Fault(kind, problem, candidate, failure)
    if answer.get("objection"):
        return Fault("wrong", problem, candidate, answer["objection"])
    return None


def _family(candidate: str) -> str:
    family = candidate.partition("(")[0] if "(" in candidate else candidate.partition("[")[0]
    return "cudnn/engine-*" if family.startswith("cudnn/engine-") else family


class Campaign:
    """Problems that several children try, each watched by a thread of its own."""

    def __init__(self, device: str, deadline_s: float, seconds: float) -> None:
        self.report = Report(device)
        self._deadline_s, self._ends = deadline_s, time.monotonic() + seconds

    def run(self, drawn: list[str], workers: int) -> None:
        waiting, lock = iter(drawn), Lock()

        def take() -> str | None:
            with lock:
                return next(waiting, None) if time.monotonic() < self._ends else None

        with ThreadPoolExecutor(workers) as pool:
            for done in [pool.submit(self._work, take) for _ in range(workers)]:
                done.result()

    def _work(self, take: Callable[[], str | None]) -> None:
        with Stage("child", {"CONVWRIGHT_STORE": "none"}) as child:
            for count, problem in enumerate(iter(take, None), start=1):
                if count % PROBLEMS_OF_A_CHILD == 0:
                    child.end()
                listed = child.ask({"problem": problem}, patience_s=STARTING_S)
                if "candidates" not in listed:
                    self.report.tried(problem, LISTING, listed)
                    child.end()
                    continue
                self.report.listed(listed)
                fresh = False  # a child that follows one that died has to start first
                for candidate in listed["candidates"]:
                    patience_s = STARTING_S if fresh else self._deadline_s
                    answer = child.ask({"problem": problem, "candidate": candidate}, patience_s=patience_s)
                    self.report.tried(problem, candidate, answer)
                    fresh = "failure" in answer
                    if fresh:
                        child.end()


if __name__ == "__main__":
    main()
