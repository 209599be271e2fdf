"""Searches by a model of the device: choose without running anything, or select the candidates to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from convwright.core.candidate import Candidate, Refusal
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding
from convwright.core.predictor import Prediction
from convwright.prediction.models import served
from convwright.prediction.predicted_choice import Predicted, PredictedVerdict, choose_predicted, worth_running
from convwright.settings import Mode
from convwright.tuning.choose import Verdict, call_us
from convwright.tuning.findings import Findings
from convwright.tuning.predicting import everything, own_of, predicted
from convwright.tuning.search import Search, baseline_of

_NOTHING_RAN = "was not measured: mode predict runs nothing"


def by_prediction(search: Search) -> Findings:
    """A choice by predicted times, or by measured ones if the store has them. The store keeps the choice with its
    mode."""
    search = replace(search, mode=Mode.PREDICT)
    rows, known, refused = _rows(search)
    verdicts = choose_predicted(rows, own_of(rows), search.policy, careful=search.device.present)
    if verdicts and verdicts[0].won:
        search.recall().record_prediction(verdicts[0].predicted.candidate)
    own = baseline_of([row.candidate for row in rows], search.policy)
    made = tuple(_verdict(each, known) for each in verdicts)
    baseline = next((each.finding for each in made if own is not None and each.finding.candidate == own), None)
    by_id = {row.candidate.id: row for row in rows}
    return Findings(
        search.problem, search.device, search.policy, search.mode, made, tuple(refused), baseline, predictions=by_id
    )


def eager_choice(found: Findings, extra_us: Callable[[Candidate], float] | None) -> Finding | None:
    """The choice of an eager call by prediction, which counts a candidate's additional host time."""
    rows = list((found.predictions or {}).values())
    verdicts = choose_predicted(rows, own_of(rows), found.policy, extra_us=extra_us, careful=found.device.present)
    won = verdicts[0].predicted.candidate if verdicts and verdicts[0].won else None
    return next((each.finding for each in found.verdicts if each.finding.candidate == won), None)


def promising(search: Search, direct: Sequence[Candidate]) -> list[Candidate]:
    """PyTorch's own call and the few candidates that may be fastest; all if nothing is predicted."""
    rows, _, _ = _rows(search)
    verdicts = choose_predicted(rows, None, search.policy)
    likely = worth_running(verdicts, search.policy)
    own = baseline_of(direct, search.policy)
    chosen = [each for each in likely if each != own]
    return list(direct) if not likely else [*([own] if own is not None else []), *chosen]


def _rows(search: Search) -> tuple[list[Predicted], dict[str, Finding], list[Refusal]]:
    predictor = search.predictor or served(search.device, search.store.path).predictor
    rows, refused = everything(search.problem, search.device, search.policy, predictor)
    recall, listed = search.recall(), [row.candidate for row in rows]
    beyond = recall.beyond(listed) if search.device.present else []
    rows += predicted(beyond, search.device, search.policy, predictor)
    known = recall.known([*listed, *beyond])
    return [_as_known(row, known, search) for row in rows], known, refused


def _as_known(row: Predicted, known: dict[str, Finding], search: Search) -> Predicted:
    """A row with its measured time from the store, if any, or with the reason why it failed."""
    finding = known.get(row.candidate.id)
    if finding is None:
        return row
    measured = finding.measurement
    if measured is None:
        return replace(row, objection=row.objection or finding.failure)
    if measured.errors:
        wrong = objection_to_errors(row.candidate, measured.errors, None, search.policy)
        row = replace(row, objection=row.objection or wrong)
    return replace(row, prediction=Prediction(call_us(finding, search.policy), in_domain=True))


def _verdict(each: PredictedVerdict, known: dict[str, Finding]) -> Verdict:
    row = each.predicted
    finding = known.get(row.candidate.id) or Finding(row.candidate, note=_NOTHING_RAN)
    us = None if row.prediction is None else row.prediction.time_us.value
    return Verdict(finding, us, each.reason, allowed=each.allowed, won=each.won)
