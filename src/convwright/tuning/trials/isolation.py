"""Candidates measured in a process of their own, so that a crash or a hang of one is its failure and nobody else's."""

from __future__ import annotations

import json
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from tempfile import TemporaryFile
from typing import IO, Any

import torch

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Measurement
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.errors import BackendError
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.process import end_in_words, search_path
from convwright.tuning.trials.contest import NO_HOOKS, Hooks
from convwright.tuning.trials.isolated import Request, Switches

COMMAND = [sys.executable, "-P", "-m", "convwright.tuning.trials.isolated"]
# So long a candidate may take for its first looks; so long, and twice the budget, may pass otherwise without a word.
MOST_LOOKING_S, MOST_SILENT_S = 60.0, 120.0


def measure_candidates(
    candidates: Iterable[Candidate],
    baseline: Candidate | None,
    known: Mapping[str, Finding],
    problem: Problem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    budget: Budget,
    hooks: Hooks = NO_HOOKS,
) -> list[Finding]:
    """As ``candidates`` does, in other processes: one that dies is followed by another, without the candidate that it
    died of. The budget is that of each; starting them takes some seconds more."""
    assert device.torch_name is not None
    order = {candidate.id: candidate for candidate in candidates}
    left, found, avoid = dict(order), dict[str, Finding](), list[str]()

    def candidate_of(id_: str) -> Candidate:
        # What a process comes upon by itself, near one that was fast, was in no list.
        order[id_] = order.get(id_) or listing.known(id_, problem, device, policy)
        return order[id_]

    while left:
        request = Request(
            problem, device.torch_name, policy, tuple(left), tuple(avoid), baseline.id if baseline else None,
            known.get(baseline.id) if baseline else None, mode, budget.total_us, hooks.energy,
            torch.get_num_threads(), Switches.now(),
        )  # fmt: skip
        with budget.paused():
            child = _Child(request, hooks)
            answered = child.run()
        if answered is not None:
            found |= {row["id"]: _finding(candidate_of(row["id"]), row) for row in answered}
            break
        if child.trying is None:
            note = f"was not measured: {child.end} while candidates were timed side by side"
            found |= {id_: Finding(candidate, note=note) for id_, candidate in left.items()}
            break
        found[child.trying] = Finding(candidate_of(child.trying), failure=f"failed: {child.end}")
        left.pop(child.trying, None)
        avoid.append(child.trying)
    missing = "was not found again by the process that measured"
    return [found.get(id_) or Finding(candidate, note=missing) for id_, candidate in order.items()]


class _Child:
    """One process. ``trying`` is the candidate that it last began to look at and did not end; ``end`` how it ended."""

    def __init__(self, request: Request, hooks: Hooks) -> None:
        self.trying: str | None = None
        self.end = ""
        self._request, self._hooks = request, hooks

    def run(self) -> list[dict[str, Any]] | None:
        """Its findings; None where it died or had to be ended before it had any."""
        with TemporaryFile() as said:  # a pipe that nobody reads meanwhile would be full before long
            process, reading = self._begun(said)
            try:
                return self._listen(process, reading, said)
            finally:
                os.close(reading)
                process.kill()
                process.wait()

    def _begun(self, said: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
        """The process, and the end of the pipe from which its answers are read."""
        environment = {**os.environ, "PYTHONPATH": search_path(), "CONVWRIGHT_STORE": "none"}
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                [*COMMAND, str(writing)], stdin=subprocess.PIPE, pass_fds=(writing,), env=environment,
                stdout=subprocess.DEVNULL, stderr=said,
            )  # fmt: skip
        except OSError as error:
            os.close(reading)
            raise BackendError(f"the process that measures candidates could not be started: {error}") from error
        finally:
            os.close(writing)
        return process, reading

    def _listen(self, process: subprocess.Popen[bytes], reading: int, said: IO[bytes]) -> list[dict[str, Any]] | None:
        assert process.stdin is not None
        try:
            process.stdin.write(pickle.dumps(self._request))
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has died already, and says why
        for message in self._messages(reading):
            if "trying" in message:
                self.trying = message["trying"]
            elif "tried" in message:
                self.trying = None
            elif "progress" in message:
                self._hooks.progress(*message["progress"])
            else:
                findings: list[dict[str, Any]] = message["findings"]
                return findings
        if not self.end:
            self.end = _ended(process, said)
        return None

    def _messages(self, reading: int) -> Iterator[dict[str, Any]]:
        """What it says, until it ends or is silent for too long."""
        buffer = b""
        while True:
            patience_s = MOST_LOOKING_S if self.trying else MOST_SILENT_S + 2 * self._request.budget_us / 1e6
            if not select.select([reading], [], [], patience_s)[0]:
                self.end = f"did not return within {patience_s:.3g} s, in a process of its own"
                return
            more = os.read(reading, 1 << 16)
            if not more:
                return
            *lines, buffer = (buffer + more).split(b"\n")
            yield from (json.loads(line) for line in lines)


def _ended(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> str:
    """How a process ended, in words; an error of ours that ended it is raised."""
    code = process.wait()
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip().splitlines()
    if code < 0:
        return f"its process {end_in_words(code)}"
    if code == 0:
        raise BackendError("the process that measures candidates ended without a word")
    last = said[-1] if said else "without a word"
    if "Traceback" in "".join(said[:1]):
        raise BackendError(f"the process that measures candidates failed: {last}")
    return f"its process {end_in_words(code)}: {last}"


def _finding(candidate: Candidate, row: dict[str, Any]) -> Finding:
    measured = None if row["measurement"] is None else Measurement.from_json(row["measurement"])
    return Finding(candidate, measured, row["failure"], row["note"])
