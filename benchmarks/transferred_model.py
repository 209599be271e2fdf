"""A model of a device's times from its own measurements and another device's, beside simpler ways to get one.

    OMP_NUM_THREADS=1 python benchmarks/transferred_model.py --device h100 --reference h200
        --out src/convwright/prediction/models/nvidia-h100-80gb-hbm3.npz [--record results.jsonl] [--kept FOLDER]

learns from the records of benchmarks/results of both devices, and from their campaigns. Rows of the reference have its
physical estimates, and 1 as a last feature. The model that is written is one of the device: it knows all rows, but its
error and its intervals are those of the device's rows. Origins are split into three folds, and an origin that is held
out is held out of the rows of both devices. The methods are: the reference's model as it is, the data sheet, the
device's rows alone, and both devices' rows, with about as many rows of the device as --few says, and with all. To list
the candidates of the records takes six minutes, which --kept saves. Nothing is measured here. The whole takes a quarter
of an hour; without the comparison (--only-model) half of that.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common.prediction_baselines import Column, Rows
from common.recorded_observations import read
from numpy import bool_
from numpy.typing import NDArray
from prediction_table import choices_of, errors_of

from convwright import strict_json
from convwright.campaign.learning import read_observations
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.observation import Observation
from convwright.core.profiles import profile
from convwright.prediction import models
from convwright.prediction.data_sheet import DATA_SHEET
from convwright.prediction.error_report import error_report
from convwright.prediction.features import SETTING, Features, algorithm_columns, features, part_columns, vocabulary
from convwright.prediction.folds import fold_of
from convwright.prediction.intervals import calibrate
from convwright.prediction.learned_times import LearnedTimes
from convwright.prediction.learning import Samples, balanced, samples, settings_for, versions_of
from convwright.prediction.time_model import Correction, fit_correction, fit_time_model

RESULTS = Path(__file__).parent / "results"
RECORDS = (
    "suites", "classes", "deepbench", "fused-zoo", "activations", "find", "own-kernels", "resnet-50", "padding-sweep",
)  # fmt: skip
FOLDS = 3
AS_IT_IS, CORRECTED = "the reference's model as it is", "the reference's model, corrected"
TIMES_FACTOR = "the reference's model times one factor"
SHEET, ALONE, BOTH = "data sheet", "the device alone", "both devices"


class Fitted(NamedTuple):
    """What a model is fitted to: a row of features for each candidate, its physical estimate, and its time."""

    rows: NDArray[Any]
    physics_us: Column
    measured_us: Column

    @classmethod
    def of(cls, found: Features, known: Samples) -> Fitted:
        return cls(found.rows, found.physics_us, known.measured_us)

    def at(self, rows: NDArray[Any]) -> Fitted:
        return Fitted(*(each[rows] for each in self))

    def beside(self, other: Fitted) -> Fitted:
        return Fitted(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def correction(self, names: tuple[str, ...]) -> Correction:
        targets, settings = np.log(self.measured_us / self.physics_us), settings_for(len(self.rows))
        terms = part_columns(names) if self.rows.shape[1] == len(names) else ()  # a corrected time is no sum of parts
        return fit_correction(self.rows, targets, settings=settings, apart=algorithm_columns(names), terms=terms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--reference", default="h200")
    parser.add_argument("--few", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--only-model", action="store_true")
    parser.add_argument("--kept", type=Path, help="a folder that keeps observations")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--out", type=Path, help="the model's .npz file")
    options = parser.parse_args()
    device, reference = profile(options.device), profile(options.reference)
    observations = {each: observed(each, options.kept) for each in (options.device, options.reference)}
    own, its = known(observations[options.device], device), known(observations[options.reference], reference)
    names = (*vocabulary((*own.candidates, *its.candidates)), f"{SETTING}on {reference.name}")
    mine = Fitted.of(features(own.candidates, device, names), own)
    theirs, as_it_is = (Fitted.of(_on_reference(each.candidates, reference, names), each) for each in (its, own))
    origins = np.concatenate([own.origins, its.origins])
    fold = fold_of(origins, FOLDS)
    head = f"{len(own):,} candidates of {device.name}, {len(its):,} of {reference.name}"
    print(f"{head}, {len(np.unique(origins)):,} origins")
    both = mine.beside(theirs)
    unseen = np.full(len(fold), np.nan)
    for each in range(FOLDS):
        out = fold == each
        unseen[out] = both.at(~out).correction(names).times(both.rows[out], both.physics_us[out])
    if not options.only_model:
        predicted = compared(mine, theirs, as_it_is, fold, names, problems(own), options.few)
        sheet = DATA_SHEET.predict_all(own.candidates, device)
        predicted |= {
            SHEET: np.array([found.time_us.value for found in sheet if found]),
            f"{BOTH}, all": unseen[: len(own)],
        }
        shared = {"benchmark": "transferred model", "device": device.name, "reference": reference.name,
                  "rows_in_all": len(own), "reference_rows": len(its), "folds": FOLDS,
                  "date": datetime.now(UTC).isoformat(timespec="seconds")}  # fmt: skip
        lines = [shared | line for line in table(predicted, own, device)]
        if options.record is not None:
            with options.record.open("a") as file:
                file.writelines(strict_json.dumps(line) + "\n" for line in lines)
    if options.out is None:
        return
    held = np.where(np.arange(len(fold)) < len(own), unseen, np.nan)
    versions = versions_of(observations[options.device]) | {"reference": reference.name}
    model = fit_time_model(
        *both, origins, device=device.key, names=names, versions=versions, settings=settings_for(len(fold)),
        unseen_us=held, apart=algorithm_columns(names), terms=part_columns(names),
    )  # fmt: skip
    # The intervals hold the reference's rows as well, of which more are unlike all others.
    error = replace(model.error, folds=FOLDS, tried=FOLDS)
    model = replace(model, rows=len(own), error=error, intervals=calibrate(unseen, both.measured_us))
    models.save(LearnedTimes(model), options.out)


def observed(device: str, kept: Path | None) -> list[Observation]:
    """What the records and campaigns of a device have measured."""
    campaigns = sorted(RESULTS.glob(f"{device}-campaign*.parquet"))
    found = [each for path in campaigns for each in read_observations(path)]
    file = None if kept is None else kept / f"{device}.jsonl.gz"
    if file is not None and file.exists():
        return [*found, *read_observations(file)]
    recorded = read(path for name in RECORDS for path in sorted(RESULTS.glob(f"{device}-{name}.jsonl*"))).observations
    if file is not None:
        with gzip.open(file, "wt") as out:
            for each in recorded:
                out.write(json.dumps(strict_json.in_words(each.to_json()), allow_nan=False) + "\n")
    return [*found, *recorded]


def _on_reference(candidates: Sequence[Candidate], reference: DeviceFacts, names: tuple[str, ...]) -> Features:
    found = features(candidates, reference, names)
    found.rows[:, -1] = 1.0
    return found


def known(observations: list[Observation], device: DeviceFacts) -> Samples:
    found = samples(observations, device)
    return found.of(balanced(found.origins))


def problems(own: Samples) -> NDArray[Any]:
    return np.array([each.problem.key for each in own.candidates])


def compared(
    mine: Fitted, theirs: Fitted, as_it_is: Fitted, fold: NDArray[Any], names: tuple[str, ...], of: NDArray[Any],
    counts: list[int],
) -> dict[str, Column]:  # fmt: skip
    """The times that each method predicts for the device's rows, which it had not seen."""
    fold, other = fold[: len(of)], fold[len(of) :]
    found: dict[str, Column] = {AS_IT_IS: np.full(len(of), np.nan)}
    for each in range(FOLDS):
        out = fold == each
        correction = theirs.at(other != each).correction(names)
        found[AS_IT_IS][out] = correction.times(as_it_is.rows[out], as_it_is.physics_us[out])
    us = found[AS_IT_IS]
    logs = np.log(np.column_stack([us, mine.physics_us / us]))
    on_top = Fitted(np.hstack([mine.rows, logs]), us, mine.measured_us)
    for each, count in product(range(FOLDS), (*counts, None)):
        out, rows = fold == each, few(fold != each, of, count, seed=each)
        some, words = mine.at(rows), "all" if count is None else str(count)
        fits = {ALONE: (some, mine), CORRECTED: (on_top.at(rows), on_top)}
        if count is not None:
            fits[BOTH] = some.beside(theirs.at(other != each)), mine
        for name, (fitted, asked) in fits.items():
            times = found.setdefault(f"{name}, {words}", np.full(len(of), np.nan))
            times[out] = fitted.correction(names).times(asked.rows[out], asked.physics_us[out])
        times = found.setdefault(f"{TIMES_FACTOR}, {words}", np.full(len(of), np.nan))
        times[out] = us[out] * np.median(mine.measured_us[rows] / us[rows])
    return found


def few(among: NDArray[bool_], of: NDArray[Any], count: int | None, *, seed: int) -> NDArray[Any]:
    """The rows of random problems until there are ``count``, as a short campaign has them."""
    rows = np.flatnonzero(among)
    if count is None:
        return rows
    picked = list[NDArray[Any]]()
    for problem in np.random.default_rng(seed).permutation(np.unique(of[rows])):
        picked.append(rows[of[rows] == problem])
        if sum(map(len, picked)) >= count:
            break
    return np.sort(np.concatenate(picked))


def table(predicted: dict[str, Column], own: Samples, device: DeviceFacts) -> Iterator[dict[str, Any]]:
    rows = Rows.of(own.candidates, own.measured_us, features(own.candidates, device))
    yield from errors_of(predicted, rows)
    yield from choices_of(predicted, rows, problems(own))
    for name, times in predicted.items():
        report = error_report(own.candidates, times, own.measured_us, own.origins)
        print(f"{name}: {report.rows[0].covered:.1%} within intervals")
        kept = report.rows if name == f"{BOTH}, all" else report.rows[:1]
        yield from ({"table": "errors", "method": name, **row.to_json()} for row in kept)


if __name__ == "__main__":
    main()
