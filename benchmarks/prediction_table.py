"""How well times of candidates are predicted on problems that were not seen, beside simpler ways of predicting them.

    OMP_NUM_THREADS=1 python benchmarks/prediction_table.py --device h200 RECORD… [--folds 5] [--out results.jsonl]
        [--observations kept.jsonl.gz] [--skip nn-meter]

RECORDs are files of benchmarks/results whose candidates were timed on the device, such as h200-suites.jsonl. Of their
problems convolutions count: the other recipes know no others. Problems are split into five folds, so that problems
alike are in one of them. Each fold is predicted by what was fitted to the others. The tables are: the error of each
method; our error and how often intervals hold, by latency and kind; how often kinds of problems that were left out are
seen to be outside of the domain; and the time that is lost where predictions alone choose. Nothing is measured here. To
list candidates takes 0.1 s a problem, which --observations keeps.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common.prediction_baselines import BASELINES, Column, Rows
from common.recorded_observations import read
from numpy import bool_, int64
from numpy.typing import NDArray

from convwright import strict_json
from convwright.campaign.learning import read_observations
from convwright.core.candidate import Candidate
from convwright.core.observation import Observation
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.prediction.domain import fit_domain
from convwright.prediction.error_report import error_report
from convwright.prediction.features import algorithm_columns, features, part_columns, vocabulary
from convwright.prediction.folds import fold_of
from convwright.prediction.learning import balanced, groups_of, samples, settings_for
from convwright.prediction.time_model import fit_correction

OURS = "convwright"
FOLDS = 5
# Problems with fewer candidates than this say little about a choice.
_FEWEST_TO_CHOOSE = 5
# Candidates that mode predict-top runs.
_TOP = 3
_SLOW = ("nn-Meter's recipe",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--folds", type=int, default=FOLDS, help="how many of the five are predicted")
    parser.add_argument("--observations", type=Path, nargs="*", default=[], help="read, or written from RECORDs")
    parser.add_argument("--quick", action="store_true", help="without the recipes that take minutes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    observations = _observations(options.records, options.observations)
    observations = [each for each in observations if isinstance(each.candidate.problem, ConvProblem)]
    device = profile(options.device)
    known = samples(observations, device)
    known = known.of(balanced(known.origins))
    found = features(known.candidates, device, vocabulary(known.candidates))
    rows = Rows.of(known.candidates, known.measured_us, found)
    groups = groups_of(known)
    problems = np.array([each.problem.key for each in known.candidates])
    head = f"{device.name}: {len(known):,} candidates of {len(np.unique(problems)):,} problems"
    print(f"{head} and {len(np.unique(groups)):,} origins")
    methods = {name: each for name, each in BASELINES.items() if not (options.quick and name in _SLOW)}
    predicted = _predicted(rows, fold_of(groups, FOLDS), options.folds, {OURS: _ours, **methods})
    lines: list[dict[str, Any]] = [*errors_of(predicted, rows), *choices_of(predicted, rows, problems)]
    report = error_report(rows.candidates, predicted[OURS], rows.measured_us, groups)
    print(report)
    lines += [{"table": "errors", **row.to_json()} for row in report.rows]
    lines += list(_domains(rows, groups))
    if options.out is not None:
        shared = {"benchmark": "prediction table", "device": device.name, "rows_in_all": len(known),
                  "date": datetime.now(UTC).isoformat(timespec="seconds")}  # fmt: skip
        with options.out.open("a") as file:
            file.writelines(strict_json.dumps(shared | line) + "\n" for line in lines)


def _observations(records: list[Path], kept: list[Path]) -> list[Observation]:
    if not records:
        return [each for path in kept for each in read_observations(path)]
    recorded = read(records)
    gone = sum(recorded.gone.values())
    print(f"{len(recorded.observations):,} observations, {gone:,} candidates do not exist any more")
    if kept:
        with gzip.open(kept[0], "wt") as file:
            for each in recorded.observations:
                file.write(json.dumps(strict_json.in_words(each.to_json()), allow_nan=False) + "\n")
    return recorded.observations


def _ours(fitted: Rows, asked: Rows) -> Column:
    known = fitted.features
    correction = fit_correction(
        known.rows,
        np.log(fitted.measured_us / known.physics_us),
        settings=settings_for(len(known.rows)),
        apart=algorithm_columns(known.names),
        terms=part_columns(known.names),
    )
    return correction.times(asked.features.rows, asked.features.physics_us)


def _predicted(
    rows: Rows, fold: NDArray[int64], tried: int, methods: Mapping[str, Callable[[Rows, Rows], Column]]
) -> dict[str, Column]:
    """What each method predicts for the rows of each fold that is tried; NaN for others."""
    found = {}
    for name, method in methods.items():
        begun, times = perf_counter(), np.full(len(rows.candidates), np.nan)
        for each in range(tried):
            out, others = np.flatnonzero(fold == each), np.flatnonzero(fold != each)
            times[out] = method(rows.at(others), rows.at(out))
        found[name] = times
        print(f"{name}: {perf_counter() - begun:.0f} s")
    return found


def errors_of(predicted: Mapping[str, Column], rows: Rows) -> Iterator[dict[str, Any]]:
    print(f"{'':26} {'MAPE':>7} {'median':>7} {'in 10 %':>8}")
    for name, times in predicted.items():
        known = np.isfinite(times)
        off = np.abs(times[known] / rows.measured_us[known] - 1)
        line = {"mape": float(off.mean()), "median": float(np.median(off)), "close": float((off <= 0.1).mean())}
        print(f"{name:26} {line['mape']:7.1%} {line['median']:7.1%} {line['close']:8.0%}")
        yield {"table": "methods", "method": name, "rows": int(known.sum()), **line}


def choices_of(predicted: Mapping[str, Column], rows: Rows, problems: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Time lost against the best measured candidate where the one that is predicted to be the best is taken, and where
    the best three by prediction are run."""
    print(f"{'time lost by choosing so':26} {'problems':>8} {'geomean':>8} {'of three':>9} {'worst':>7}")
    for name, times in predicted.items():
        lost, lost_of_three = list[float](), list[float]()
        for problem in np.unique(problems[np.isfinite(times)]):
            here = np.flatnonzero(problems == problem)
            if len(here) < _FEWEST_TO_CHOOSE:
                continue
            order, measured = np.argsort(times[here], kind="stable"), rows.measured_us[here]
            lost.append(float(measured[order[0]] / measured.min()))
            lost_of_three.append(float(measured[order[:_TOP]].min() / measured.min()))
        if not lost:
            continue
        one, three = (float(np.exp(np.mean(np.log(each)))) - 1 for each in (lost, lost_of_three))
        print(f"{name:26} {len(lost):8} {one:8.1%} {three:9.1%} {max(lost) - 1:7.0%}")
        yield {"table": "choices", "method": name, "problems": len(lost), "lost": one, "lost_of_three": three}


_LEFT_OUT: Mapping[str, Callable[[Candidate], bool]] = {
    "depthwise": lambda each: each.problem.groups > 1,
    "three dimensions": lambda each: each.problem.rank == 3,
    "filters of 5x5 and more": lambda each: max(each.problem.taps) >= 5,
    "gradients of weights": lambda each: str(each.problem.direction) == "backward_weight",
    "16 bits": lambda each: each.problem.dtype.nbytes == 2,
    "batches of 16 and more": lambda each: each.problem.n >= 16,
    "dilated": lambda each: max(each.problem.dilation) > 1,
}


def _domains(rows: Rows, groups: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Kinds of problems that a model has never seen: how many of their rows are flagged, how far predictions are off
    there, and how many rows of known kinds are flagged all the same."""
    print(f"{'left out of learning':26} {'rows':>6} {'flagged':>8} {'MAPE':>7} {'false alarms':>13}")
    for name, belongs in _LEFT_OUT.items():
        is_odd = np.array([isinstance(each.problem, ConvProblem) and belongs(each) for each in rows.candidates])
        if not 50 <= is_odd.sum() <= 0.7 * len(is_odd):
            continue
        held = (fold_of(groups, FOLDS) == 0) & ~is_odd
        line = _flagged(rows, groups, is_odd, held)
        print(f"{name:26} {line['rows']:6,} {line['flagged']:8.0%} {line['mape']:7.1%} {line['false_alarms']:13.0%}")
        yield {"table": "domain", "left_out": name, **line}


def _flagged(rows: Rows, groups: NDArray[Any], odd: NDArray[bool_], held: NDArray[bool_]) -> dict[str, Any]:
    fitted, strange, usual = (np.flatnonzero(each) for each in (~odd & ~held, odd, held))
    names = vocabulary([rows.candidates[int(row)] for row in fitted])
    columns = [rows.features.names.index(name) for name in names]
    shown = rows.features.rows[:, columns]
    known = np.array([f"algorithm {each}" in set(names) for each in rows.algorithms])
    domain = fit_domain(shown[fitted], groups[fitted])
    inside = {"odd": domain.contains(shown[strange]) & known[strange], "usual": domain.contains(shown[usual])}
    off = np.abs(_ours(rows.at(fitted), rows.at(strange)) / rows.measured_us[strange] - 1)
    return {
        "rows": len(strange), "flagged": float(1 - inside["odd"].mean()), "mape": float(off.mean()),
        "false_alarms": float(1 - (inside["usual"] & known[usual]).mean()),
    }  # fmt: skip


if __name__ == "__main__":
    main()
