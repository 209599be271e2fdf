"""The winner in sentences: why it won, by how much, and its cost."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.finding import Finding, Measurement
from convwright.core.limits import limits
from convwright.core.policy import Objective, Weights
from convwright.measuring.compare import TIE
from convwright.report.words.amounts import percent_text, time_text
from convwright.tuning.choose import Verdict, call_us, cost
from convwright.tuning.find import Findings

_WIDE = 0.05
_AIMS = {
    Objective.TIME: "device time including packing; eager calls also count the host time that a candidate adds",
    Objective.DEVICE_TIME: "device time alone, in eager calls too",
    Objective.ENERGY: "the energy of a call",
    Objective.WORKSPACE: "workspace",
    Objective.TIME_THEN_WORKSPACE: "device time, then workspace among candidates whose times tie",
}
_DISTURBED = "A time that other work on the machine disturbed does not count."
_CALLS_ON_A_CPU = (
    "On a CPU conv2d never searches: it runs PyTorch's own call unless `find` or `tune` has found a candidate that is "
    "surely 10 % faster."
)
_CALLS_ON_A_GPU = (
    "The second call of conv2d on such operands searches for about 200 ms (CONVWRIGHT_MODE=quick, the default). "
    "Until then PyTorch's own call runs."
)


def winner(found: Findings) -> tuple[str, ...]:
    """Sentences about the winner, or why there is none."""
    won = next((verdict for verdict in found.verdicts if verdict.won), None)
    if won is None:
        return _without_winner(found)
    measured = won.finding.measurement
    assert measured is not None
    lines = [
        f"{won.finding.candidate.id}, {won.reason}.",
        *_margin(won, found),
        f"The objective is {_AIMS[found.policy.objective]}.",
        _cost(won.finding, measured, found),
        _properties(won.finding, measured, found),
    ]
    if call_us(won.finding, found.policy).relative_halfwidth > _WIDE:
        lines.append("That interval is wide: a longer measurement may choose another candidate.")
    if measured.doubt:
        lines.append(f"Its time is in doubt: {measured.doubt}.")
    return tuple(lines)


def _without_winner(found: Findings) -> tuple[str, ...]:
    if not found.verdicts:
        return ("Nothing: no candidate can compute this problem on this device.",)
    if any(verdict.finding.measurement for verdict in found.verdicts):
        if any(verdict.allowed for verdict in found.verdicts):
            return (f"The fastest is unknown: PyTorch's own call was not measured. {_DISTURBED}",)
        return ("Nothing that was measured is allowed.",)
    unknown = "The fastest is unknown: nothing was measured under the present versions."
    if not found.device.present:
        return (unknown,)
    calls = _CALLS_ON_A_CPU if found.device.kind == "cpu" else _CALLS_ON_A_GPU
    is_called = found.problem.kind == "conv" and not found.problem.dtype.narrow
    return (*((calls,) if is_called else ()), unknown, f"{_DISTURBED} Measure again.")


def _margin(won: Verdict, found: Findings) -> Iterable[str]:
    """The winner's margin over PyTorch's own call and over the next best."""
    base, rivals = found.baseline, [v for v in found.verdicts if v.allowed and not v.won]
    if base is not None and base.measurement is not None and base is not won.finding:
        yield f"PyTorch's own call, {base.candidate.id}, takes {_amount(base, found)}."
    if base is won.finding:
        yield f"A tie is a difference of up to {TIE * 100:g} %, or one that both intervals leave open."
    cheaper = [v.finding for v in rivals if _is_cheaper(v.finding, won.finding, found)]
    if cheaper:
        less = _amount(cheaper[0], found)
        yield f"{cheaper[0].candidate.id} takes {less}, which is not surely better by more than a tie."
    elif rivals and rivals[0].finding is not base:
        yield f"The next best is {rivals[0].finding.candidate.id} with {_amount(rivals[0].finding, found)}."


def _is_cheaper(finding: Finding, won: Finding, found: Findings) -> bool:
    """Whether a finding costs less than the winner. False if workspace decides."""
    if found.policy.objective in (Objective.WORKSPACE, Objective.TIME_THEN_WORKSPACE) or won.measurement is None:
        return False
    return cost(finding, found.policy).value < cost(won, found.policy).value


def _amount(finding: Finding, found: Findings) -> str:
    """The time of a measured candidate, with its energy or workspace if the objective counts these."""
    measured, objective = finding.measurement, found.policy.objective
    assert measured is not None
    text = time_text(call_us(finding, found.policy).value)
    if objective is Objective.ENERGY and measured.energy_mj is not None:
        return f"{text} and {measured.energy_mj:.3g} mJ"
    workspace = objective in (Objective.WORKSPACE, Objective.TIME_THEN_WORKSPACE)
    return f"{text} and {measured.workspace_bytes:,} bytes of workspace" if workspace else text


def _cost(finding: Finding, measured: Measurement, found: Findings) -> str:
    time_us = call_us(finding, found.policy)
    parts = [f"device {time_text(measured.device_us.value)}"]
    if measured.prepare_us is not None:
        kept = "" if found.policy.weights is Weights.CHANGING else ", once, since weights are constant"
        parts.append(f"packing the weight {time_text(measured.prepare_us.value)}{kept}")
    text = f"A call takes {time_text(time_us.value)} ± {percent_text(time_us)} %: {', '.join(parts)}."
    bound = limits(finding.candidate, found.device)
    share = bound.share(measured.device_us.value)
    if share is not None:
        text += f" The device needs at least {time_text(bound.limit_us)}: this is {share * 100:.0f} % of its peak."
    return text


def _properties(finding: Finding, measured: Measurement, found: Findings) -> str:
    candidate = finding.candidate
    certain = {True: "is deterministic", False: "is not deterministic", None: "may not be deterministic"}
    text = (
        f"It computes in {candidate.arithmetic}, needs {measured.workspace_bytes:,} bytes of workspace and "
        f"{certain[candidate.deterministic]}."
    )
    error = next((error for error in measured.errors if error.kind == "normal"), None)
    if error is not None:
        text += f" Its relative error on normally distributed data is {error.relative_l2:.1e}"
        text += "." if finding is found.baseline else f"; at most {found.policy.max_error:g}x PyTorch's is allowed."
    return text
