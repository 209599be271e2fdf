"""The result of tuning a model, as a table."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.advising.advice_text import UNKNOWN, names
from convwright.advising.tuned import Tuned, TunedProblem
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.naming import singular
from convwright.report.words.amounts import bytes_text
from convwright.report.words.columns import filled, longest
from convwright.report.words.conditions import print_conditions
from convwright.report.words.sheet import Sheet
from convwright.report.words.too_large import print_too_large
from convwright.report.words.unstable import print_unstable
from convwright.tuning.choose import call_us
from convwright.tuning.findings import Findings
from convwright.tuning.kernels import BEING_COMPILED
from convwright.wording.compact import compact, without_direction
from convwright.wording.conditions_text import compared_in, conditions_now, permitted_in

_LEFT = ("layers", "problem", "candidate")
_DIRECTION = "direction"
_COLUMNS = (
    "layers", _DIRECTION, "problem", "calls", "candidate", "µs", "torch µs", "times faster", "95 %", "rounds",
    "workspace", "search s",
)  # fmt: skip
# The columns if nothing ran. Times, if there are any, are from earlier searches.
_PLANNED = ("layers", _DIRECTION, "problem", "calls", "candidates", "candidate", "µs", "workspace")
# The columns of a narrow table, the most important first.
_KEPT = ("layers", _DIRECTION, "candidate", "µs", "torch µs", "times faster", "95 %", "rounds")
_PLANNED_KEPT = ("layers", _DIRECTION, "candidate", "workspace")
# Below this width, a candidate's configuration is shortened.
_WIDE = 150
_MOST_KNOBS = 3
# The mark of a time that is unstable.
_UNSURE = "~"
_DISTURBED = "disturbed"
_SHORT = "short of time or memory"
_WAITING = "waiting for kernels to compile"


def print_tuned(tuned: Tuned, console: Console) -> None:
    """One row for each distinct problem, and the total."""
    console.print(Text(singular(f"{tuned.device.key} · mode {tuned.mode}"), style="bold"))
    if tuned.problems:
        console.print(tuned_sheet(tuned, console.width).table(console.width))
        found = [each.findings for each in tuned.problems]
        measured = [time for each in found for time in compared_in(each)]
        print_conditions(measured, console, permitted_in(found, conditions_now(tuned.device)))
        print_unstable(
            [each.findings.unstable for each in tuned.problems],
            console,
            mark=f"{_UNSURE}:",
            tolerated=any(each.findings.tolerates_load for each in tuned.problems),
        )
        print_too_large(
            ((names(each.posed.names), each.posed.problem) for each in tuned.problems), tuned.device, console
        )
    for name, reason in tuned.left_out:
        console.print(Text(f"{name} is left out: {reason}."))
    console.print(Text(singular(_sentence(tuned))))


def tuned_sheet(tuned: Tuned, width: int) -> Sheet:
    """A row for each distinct problem. In a narrow table a candidate's configuration is shortened."""
    rows = tuple(_cells(each) for each in tuned.problems)
    planned = not tuned.mode.measures
    names_ = [*(_PLANNED if planned else _COLUMNS)]
    if len({row[_DIRECTION] for row in rows}) == 1:
        names_.remove(_DIRECTION)
    else:
        rows = tuple(row | {"problem": without_direction(row["problem"])} for row in rows)
    if width < _WIDE:
        rows = tuple(row | {"candidate": _brief(row["candidate"])} for row in rows)
    if width < sum(longest(rows, name) + 2 for name in filled(rows, names_)) - 2:
        names_.remove("search s" if not planned else "calls")
    return Sheet(tuple(names_), rows, _PLANNED_KEPT if planned else _KEPT, _LEFT, (_DIRECTION,))


def tuned_data(tuned: Tuned) -> list[dict[str, Any]]:
    """One flat row for each distinct problem, for other programs."""
    return [_data(each) for each in tuned.problems]


def _data(each: TunedProblem) -> dict[str, Any]:
    found = each.findings
    own, ratio = _time_us(found.baseline, found.policy), found.times_faster
    return {
        "layers": " ".join(each.posed.names),
        "direction": str(each.posed.problem.direction),
        "problem": each.posed.problem.key,
        "calls": each.posed.calls,
        "candidate": each.candidate.id if each.candidate else None,
        "call_us": _time_us(found.choice, found.policy),
        "torch_us": own,
        "times_faster": None if ratio is None else ratio.value,
        "times_faster_low": None if ratio is None else ratio.low,
        "times_faster_high": None if ratio is None else ratio.high,
        "rounds": None if found.paired is None else found.paired.rounds,
        "workspace_bytes": each.workspace_bytes,
        "search_s": each.seconds,
        "known": each.known,
        "unstable": found.unstable is not None,
    }


def _brief(id_: str) -> str:
    """A candidate's name with the first settings of each configuration.

    >>> _brief("relayout(nhwc, cudnn/engine-38[k2=8,k13=1,k14=4,k18=0])"), _brief("cudnn/engine-0[k2=8]")
    ('relayout(nhwc, cudnn/engine-38[k2=8,k13=1,k14=4,…])', 'cudnn/engine-0[k2=8]')
    """

    def cut(settings: re.Match[str]) -> str:
        knobs = settings[1].split(",")
        return settings[0] if len(knobs) <= _MOST_KNOBS else f"[{','.join(knobs[:_MOST_KNOBS])},…]"

    return re.sub(r"\[([^][]*)\]", cut, id_)


def _cells(each: TunedProblem) -> dict[str, str]:
    found, candidate = each.findings, each.candidate
    listed, permitted = len(found.verdicts), len(each.permitted)
    return {
        "layers": names(each.posed.names),
        _DIRECTION: str(each.posed.problem.direction),
        "problem": compact(each.posed.problem),
        "calls": str(each.posed.calls),
        "candidates": f"{listed}" if permitted == listed else f"{permitted} of {listed}",
        "candidate": candidate.id if candidate else UNKNOWN,
        "µs": _time(found.choice, found.policy),
        "torch µs": _time(found.baseline, found.policy),
        **_ratio(found),
        "workspace": bytes_text(each.workspace_bytes, at_most=each.workspace_is_bound),
        "search s": "known" if each.known else f"{each.seconds:.1f}",
    }


def _ratio(found: Findings) -> dict[str, str]:
    """The speedup of the choice over PyTorch's own call, and the measurement that it comes from."""
    ratio = found.times_faster
    cells = dict.fromkeys(("times faster", "95 %", "rounds"), UNKNOWN)
    if ratio is None or found.choice is found.baseline:
        return cells
    rounds = UNKNOWN if found.paired is None else str(found.paired.rounds)
    return {"times faster": f"{ratio.value:.2f}", "95 %": f"{ratio.low:.2f} to {ratio.high:.2f}", "rounds": rounds}


def _time(finding: Finding | None, policy: Policy) -> str:
    time_us = _time_us(finding, policy)
    if finding is None or time_us is None:
        return UNKNOWN
    return f"{_UNSURE if finding.unstable is not None else ''}{time_us:,.1f}"


def _time_us(finding: Finding | None, policy: Policy) -> float | None:
    return None if finding is None or finding.measurement is None else call_us(finding, policy).value


def _sentence(tuned: Tuned) -> str:
    if not tuned.problems:
        return "No supported convolution runs in this model."
    workspace = "unknown"
    if tuned.workspace_bytes is not None:
        workspace = bytes_text(tuned.workspace_bytes, at_most=tuned.workspace_is_bound)
    if not tuned.mode.measures:
        return f"{len(tuned.problems)} distinct problems; nothing ran. Shared workspace: {workspace}."
    said = f"{len(tuned.problems)} distinct problems, {tuned.known} of them known before, in {tuned.seconds:.1f} s"
    return f"{said}; shared workspace: {workspace}. {_remembered(tuned)}"


def _remembered(tuned: Tuned) -> str:
    """How many searches are complete and are not repeated later, and why the others are not."""
    why = [_left_open(each) for each in tuned.problems]
    open_, count, kept = Counter(each for each in why if each is not None), len(why), why.count(None)
    if kept and tuned.unkept is not None:
        return f"What was measured now is not remembered: {tuned.unkept}."
    if not open_:
        return "The result is remembered." if count == 1 else "All are remembered."
    again = f"run it again{' when the machine is quiet' if _DISTURBED in open_ else ''}"
    if count == 1:
        return f"The result is not remembered, since the search was {why[0]}: {again}."
    if len(open_) > 1:
        causes = ", ".join(f"{number} {_were(number)} {cause}" for cause, number in open_.items())
    else:
        others = "all" if not kept else "the other" if count - kept == 1 else "the others"
        causes = f"{others} {_were(count - kept)} {next(iter(open_))}"
    return f"{kept or 'None'} of {count} {'are' if kept > 1 else 'is'} remembered; {causes}: {again}."


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _left_open(each: TunedProblem) -> str | None:
    """Why a search is incomplete and will be repeated; None if it is complete."""
    rows = [verdict.finding for verdict in each.findings.verdicts]
    if any(row.unstable is not None for row in rows):
        return _DISTURBED
    if any(row.is_open for row in rows):
        return _SHORT
    return _WAITING if any(row.note == BEING_COMPILED for row in rows) else None
