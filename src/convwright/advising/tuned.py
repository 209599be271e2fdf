"""Search once for every convolution of a model, so that later calls find their choices."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from convwright.advising.advice_text import names
from convwright.advising.shapes import example_of
from convwright.api.finding import refuse_ignored
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy, check_policy
from convwright.eager.calls.call import forget
from convwright.engine.capture.distinct import Posed, distinct
from convwright.engine.capture.example import Model, Subject
from convwright.engine.capture.layers import LayerCall, Recording, record
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import check_above_0, one_of, singular
from convwright.notebook import html
from convwright.option_names import ModeName
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import find
from convwright.tuning.findings import Findings
from convwright.tuning.listing import objection
from convwright.tuning.session import session, using
from convwright.tuning.upcoming import Upcoming
from convwright.uncompiled import uncompiled
from convwright.wording.compact import compact
from convwright.wording.conditions_text import conditions_now
from convwright.wording.progress import Progress, doing, progress_to


@dataclass(frozen=True, slots=True, repr=False)
class TunedProblem:
    """One problem of a model and its findings.

    ``known`` says that nothing had to be measured. ``seconds`` is the duration of the search.
    """

    posed: Posed
    findings: Findings
    seconds: float

    @property
    def known(self) -> bool:
        timed = [v.finding for v in self.findings.verdicts if v.finding.measurement or v.finding.failure]
        return bool(timed) and all(finding.remembered for finding in timed)

    @property
    def candidate(self) -> Candidate | None:
        """The choice; PyTorch's own call if there is no choice but a measurement; else the first of ``permitted`` with
        a known workspace."""
        if self.findings.choice is not None:
            return self.findings.choice.candidate
        if self.findings.baseline is not None and any(v.finding.measurement for v in self.findings.verdicts):
            return self.findings.baseline.candidate
        known = (candidate for candidate in self.permitted if candidate.workspace_bytes is not None)
        return next(known, next(iter(self.permitted), None))

    @property
    def permitted(self) -> tuple[Candidate, ...]:
        """The candidates that the policy allows, as far as that is known before anything runs, the most promising
        first."""
        found = [verdict.finding for verdict in self.findings.verdicts if verdict.finding.failure is None]
        return tuple(each.candidate for each in found if objection(each.candidate, self.findings.policy) is None)

    @property
    def workspace_bytes(self) -> int | None:
        """The workspace of the candidate; None if it is known only after building."""
        choice = self.findings.choice
        if choice is not None and choice.measurement is not None:
            return choice.measurement.workspace_bytes
        return None if self.candidate is None else self.candidate.workspace_bytes

    @property
    def workspace_is_bound(self) -> bool:
        """True if the workspace is an upper bound, because nothing was measured."""
        measured = self.findings.choice is not None and self.findings.choice.measurement is not None
        return not measured and self.candidate is not None and self.candidate.workspace_is_bound

    def __repr__(self) -> str:
        return f"<TunedProblem: {', '.join(self.posed.names)}: {self.findings!r}>"

    def to_json(self) -> dict[str, Any]:
        """Its entry in what ``tune`` gives."""
        return _entry(self)


@dataclass(frozen=True, slots=True, repr=False)
class Tuned:
    """The result of ``tune``: one entry for each distinct problem, the one with the most arithmetic first.

    In mode "heuristic" nothing ran, and each entry lists the candidates. ``unkept`` says why the findings end with this
    process, if no file keeps them.
    """

    device: DeviceFacts
    mode: Mode
    problems: tuple[TunedProblem, ...]
    left_out: tuple[tuple[str, str], ...]
    seconds: float
    unkept: str | None = None

    @property
    def known(self) -> int:
        """The number of problems for which nothing had to be measured."""
        return sum(each.known for each in self.problems)

    @property
    def workspace_bytes(self) -> int | None:
        """The workspace that all problems share, since they run one after the other. None if one is unknown."""
        needs = [each.workspace_bytes for each in self.problems]
        known = [need for need in needs if need is not None]
        return max(known, default=0) if len(known) == len(needs) else None

    @property
    def workspace_is_bound(self) -> bool:
        """True if the largest workspace is an upper bound."""
        exact = [each.workspace_bytes or 0 for each in self.problems if not each.workspace_is_bound]
        return self.workspace_bytes is not None and self.workspace_bytes > max(exact, default=0)

    def __repr__(self) -> str:
        return singular(f"<Tuned: {len(self.problems)} problems on {self.device.key}, {self.known} known before>")

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> dict[str, Any]:
        """Everything, as data."""
        return {
            "device": self.device.label,
            "mode": self.mode,
            "conditions": dict(conditions_now(self.device)),
            "seconds": self.seconds,
            "known": self.known,
            "unkept": self.unkept,
            "workspace_bytes": self.workspace_bytes,
            "workspace_is_bound": self.workspace_is_bound,
            "problems": [each.to_json() for each in self.problems],
            "left_out": [{"name": name, "reason": reason} for name, reason in self.left_out],
        }


@uncompiled()
def tune(
    model: Model,
    example: object,
    *,
    device: str | DeviceFacts | None = None,
    backward: bool = False,
    mode: Mode | ModeName = Mode.FULL,
    policy: Policy | None = None,
    budget_us: float | None = None,
    plan_only: bool = False,
    progress: bool | Progress | None = None,
    layers: str | None = None,
    tolerate_load: bool = False,
    store: Store | Path | str | None = None,
) -> Tuned:
    """Search for the best candidate of every convolution that ``model`` runs on ``example``.

    ``example`` is a tensor, its shape, a tuple of arguments or a dict of keyword arguments. The model runs once, to
    record its convolutions; a model on "meta" computes nothing. Each problem's findings are stored when its search
    ends: Ctrl-C loses only the current problem, and the next run continues from there.

    Args:
        device: The device to search on; the default is the model's own.
        backward: Also search for the gradients that a training step needs, and for the problems in which a kernel fuses
            an activation's derivative with them.
        budget_us: The time for each problem. The default depends on ``mode``.
        plan_only: List candidates with their workspaces and time nothing, as mode "heuristic" does. A device that is
            not in this machine ("h200") needs this.
        layers: A pattern for the names of layers, as "d1.*". Other layers are left out.
        tolerate_load: Compare candidates on a busy machine as well, by ratios of rounds in which both ran. Unstable
            times are not stored.

    >>> import torch
    >>> tune(torch.nn.Conv2d(2, 4, 3), torch.ones(1, 2, 8, 8), mode="heuristic").problems
    (<TunedProblem: Conv2d: <Findings: g1mb1ic2oc4ih8iw8oh6ow6kh3kw3sh1sw1ph0pw0dh0dw0 dt:fp32 ...>>,)
    """
    wanted = one_of(Mode, "mode", mode, but=Mode.OFF)
    check_policy(policy)
    if budget_us is not None:
        check_above_0("`budget_us`", budget_us)
    if plan_only:
        wanted = Mode.HEURISTIC
    if not wanted.measures:
        refuse_ignored({"a budget": budget_us, "`tolerate_load`": tolerate_load}, f"mode {wanted} measures nothing")
    if device is not None and wanted.measures:
        _check_present(device_facts(device))
    tell, begun = progress_to(progress), perf_counter()
    recording = record(Subject.of(model, example_of(model, example)), backward=backward)
    facts = where(device, recording)
    policy, found = policy or Policy(), dict[Problem, TunedProblem]()
    chosen = recording.layers if layers is None else layers_like(layers, recording)
    everything = distinct(chosen, lambda each: (*each.problems(), *each.fused_problems(policy, facts)))
    posed: dict[Problem, Posed] = {each.problem: each for each in everything}
    with (
        using(store) as kept,
        Upcoming(posed, facts, policy, mode=wanted, store=kept, budget_us=budget_us).compiling() as upcoming,
    ):
        for done, problem in enumerate(upcoming.in_turn()):
            what = f"{names(posed[problem].names)}: {compact(posed[problem].problem)}"
            tell(done, len(posed), what)
            start = perf_counter()
            findings = find(
                problem, facts, policy, mode=wanted, store=kept, budget_us=budget_us,
                tolerate_load=tolerate_load, progress=partial(_tell_step, tell, done, len(posed), what),
            )  # fmt: skip
            found[problem] = TunedProblem(posed[problem], findings, perf_counter() - start)
        nothing_new = not wanted.measures or (kept.reads_file and all(each.known for each in found.values()))
        unkept = None if nothing_new else kept.unkept
    tell(len(posed), len(posed), "")
    session().forget()  # calls that were decided before are decided again with the new findings
    forget()
    return Tuned(
        facts, wanted, tuple(found[problem] for problem in posed), recording.left_out, perf_counter() - begun, unkept
    )


def layers_like(pattern: str, recording: Recording) -> tuple[LayerCall, ...]:
    """The layers whose names match ``pattern``."""
    found = tuple(layer for layer in recording.layers if fnmatchcase(layer.name, pattern))
    if not found and recording.layers:
        there = names(tuple(dict.fromkeys(layer.name for layer in recording.layers)))
        raise BadInput(f"no layer is called like {pattern!r}; there are {there}")
    return found


def _tell_step(tell: Progress, done: int, total: int, what: str, step: str, *_: int) -> None:
    """Report the current step of the search for one problem."""
    tell(done, total, f"{doing(step)}: {what}")


def _check_present(facts: DeviceFacts) -> None:
    if not facts.present:
        raise BadInput(f"{facts.name} is not in this machine: use plan_only (--plan-only), which times nothing")


def where(device: str | DeviceFacts | None, recording: Recording) -> DeviceFacts:
    """The named device, or else the model's own."""
    if device is not None:
        return device_facts(device)
    if recording.device is not None and recording.device.type == "meta":
        raise BadInput('a model on "meta" has no device: name one with `device`, got None')
    return device_facts(recording.device)


def _entry(tuned: TunedProblem) -> dict[str, Any]:
    return {
        "layers": list(tuned.posed.names),
        "calls": tuned.posed.calls,
        "known": tuned.known,
        "seconds": tuned.seconds,
        "candidate": None if tuned.candidate is None else tuned.candidate.id,
        "permitted": len(tuned.permitted),
        "workspace_bytes": tuned.workspace_bytes,
        "workspace_is_bound": tuned.workspace_is_bound,
        **tuned.findings.to_json(),
    }
