"""How well times are predicted that others have measured and published, beside simpler ways of predicting them.

    OMP_NUM_THREADS=1 python benchmarks/public_timings.py [--data benchmarks/data] [--out results.jsonl]
        [--cases t4-measured,t4-predicted,tensorrt-500,tensorrt-20000] [--folds 5]

Problems are split into five folds. In turn each fold is predicted by what was fitted to a few problems of the others.
A case writes one line for each method: the mean and the median of |predicted / measured - 1|. Nothing is measured here.
It takes about 15 minutes on one core, and needs scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import time_baselines
from common.convolution_physics import Described, fp16_tensor_cores, fp32_3x3
from common.data_sheets import T4, V100
from common.timed_convolutions import Column, Timed, cudnn, shared, tensorrt
from numpy import int64
from numpy.typing import NDArray

from convwright import strict_json
from convwright.prediction.folds import fold_of
from convwright.prediction.time_model import PredictedTimes, fit_time_model
from convwright.prediction.transfer import SharedProblems, fit_transfer

Rows = NDArray[int64]
OURS = "convwright"
SEED = 20261129


@dataclass(frozen=True, slots=True)
class Split:
    """The rows that are fitted to, those left over from the other folds, and those of the fold that are predicted."""

    fitted: Rows
    unused: Rows
    asked: Rows


@dataclass(frozen=True, slots=True)
class Case:
    """``ours`` and each baseline predict the asked rows of a split."""

    name: str
    timed: Timed
    rows: int
    target: float
    ours: Callable[[Split], PredictedTimes]
    baselines: dict[str, Callable[[Split], Column]]


def tensorrt_case(data: Path, rows: int, target: float) -> Case:
    timed = tensorrt(data)
    described = fp16_tensor_cores(timed.convolutions, V100)
    features = described.matrix()

    def ours(split: Split) -> PredictedTimes:
        model = fit_time_model(
            features[split.fitted],
            described.physics_us[split.fitted],
            timed.us[split.fitted],
            timed.convolutions.problems()[split.fitted],
            device=V100.name,
            names=list(described.features),
        )
        return model.predict(features[split.asked], described.physics_us[split.asked])

    peak = V100.fp16_flops_per_us
    assert peak is not None
    roofline = time_baselines.roofline(peak, V100.bytes_per_us, 2)
    return Case(f"TensorRT fp16, V100, {rows} rows", timed, rows, target, ours, _alone(timed, roofline))


def transfer_case(data: Path, target: float, *, predicted: bool) -> Case:
    """T4 from 300 problems, with V100's times for them and for those asked."""
    timed, v100_us = shared(cudnn(data, "T4"), cudnn(data, "V100"))
    here, there = (fp32_3x3(timed.convolutions, gpu) for gpu in (T4, V100))
    features = here.matrix()

    def problems(rows: Rows, reference_us: Column) -> SharedProblems:
        return SharedProblems(reference_us, features[rows], here.estimates()[rows], there.estimates()[rows])

    def references(split: Split) -> tuple[Column, Column]:
        if not predicted:
            return v100_us[split.fitted], v100_us[split.asked]
        return _v100_predicted(there, v100_us, split)

    def ours(split: Split) -> PredictedTimes:
        of_fitted, of_asked = references(split)
        model = fit_transfer(
            problems(split.fitted, of_fitted),
            timed.us[split.fitted],
            device=T4.name,
            reference=V100.name,
            features=list(here.features),
            estimates=list(here.estimates_us),
        )
        return model.predict(problems(split.asked, of_asked))

    def beside(split: Split) -> Column:
        of_fitted, of_asked = references(split)
        fitted, asked = (timed.convolutions.rows(rows) for rows in (split.fitted, split.asked))
        return time_baselines.linear_beside(fitted, of_fitted, timed.us[split.fitted], asked, of_asked)

    def ratio(split: Split) -> Column:
        of_fitted, of_asked = references(split)
        return time_baselines.constant_ratio(of_fitted, timed.us[split.fitted], of_asked)

    roofline = time_baselines.roofline(T4.fp32_flops_per_us, T4.bytes_per_us, 4)
    kind = "predicted" if predicted else "measured"
    baselines = _alone(timed, roofline) | {"linear with V100's time": beside, "V100's time, scaled": ratio}
    return Case(f"cuDNN fp32, T4, 300 problems and V100's {kind} times", timed, 300, target, ours, baselines)


def _v100_predicted(described: Described, us: Column, split: Split) -> tuple[Column, Column]:
    """V100's times for fitted and asked problems, by a model of V100 that has seen neither."""
    features, seen = described.matrix(), split.unused
    model = fit_time_model(
        features[seen], described.physics_us[seen], us[seen], device=V100.name, names=list(described.features)
    )
    fitted, asked = (
        model.predict(features[rows], described.physics_us[rows]).value_us for rows in (split.fitted, split.asked)
    )
    return fitted, asked


def _alone(timed: Timed, roofline: time_baselines.Baseline) -> dict[str, Callable[[Split], Column]]:
    """Baselines that know the device's own times alone."""

    def predicts(baseline: time_baselines.Baseline, split: Split) -> Column:
        fitted, asked = (timed.convolutions.rows(rows) for rows in (split.fitted, split.asked))
        return baseline(fitted, timed.us[split.fitted], asked)

    methods = {
        "nn-Meter's recipe": time_baselines.nn_meter,
        "linear in logarithms": time_baselines.linear,
        "roofline": roofline,
        "constant rate": time_baselines.constant_rate,
    }
    return {name: partial(predicts, baseline) for name, baseline in methods.items()}


CASES: dict[str, Callable[[Path], Case]] = {
    "t4-measured": lambda data: transfer_case(data, 0.07, predicted=False),
    "t4-predicted": lambda data: transfer_case(data, 0.14, predicted=True),
    "tensorrt-500": lambda data: tensorrt_case(data, 500, 0.22),
    "tensorrt-20000": lambda data: tensorrt_case(data, 20_000, 0.07),
}


def splits(case: Case, folds: int) -> Iterator[Split]:
    fold, random = fold_of(case.timed.convolutions.problems(), 5, seed=SEED), np.random.default_rng(SEED)
    for each in range(folds):
        others = random.permutation(np.flatnonzero(fold != each))
        yield Split(others[: case.rows], others[case.rows :], np.flatnonzero(fold == each))


def lines(case: Case, folds: int) -> Iterator[dict[str, Any]]:
    """One line for each method, ours first."""
    made: dict[str, list[dict[str, float]]] = {}
    for split in splits(case, folds):
        measured = case.timed.us[split.asked]
        begun = perf_counter()
        ours = case.ours(split)
        taken_s = perf_counter() - begun
        held = (ours.low_us <= measured) & (measured <= ours.high_us)
        facts = {"covered": float(held.mean()), "in_domain": float(ours.in_domain.mean()), "taken_s": taken_s}
        made.setdefault(OURS, []).append(_error(ours.value_us, measured) | facts)
        for name, baseline in case.baselines.items():
            made.setdefault(name, []).append(_error(baseline(split), measured))
    for name, of_folds in made.items():
        means = {key: float(np.mean([each[key] for each in of_folds])) for key in of_folds[0]}
        yield {
            "benchmark": "public timings",
            "case": case.name,
            "method": name,
            **means,
            "target_mape": case.target,
            "fitted_rows": case.rows,
            "of_folds": of_folds,
            "conditions": conditions(),
        }


def _error(predicted: Column, measured: Column) -> dict[str, float]:
    off = np.abs(predicted / measured - 1)
    return {"mape": float(off.mean()), "median": float(np.median(off))}


def conditions() -> dict[str, str]:
    """What the figures depend on: the times are others', so the machine counts for ``taken_s`` alone."""
    versions = {name: metadata.version(name) for name in ("numpy", "scikit-learn")}
    machine = {"python": platform.python_version(), "threads": os.environ.get("OMP_NUM_THREADS", "all")}
    return versions | machine | {"date": datetime.now(UTC).isoformat(timespec="seconds")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--folds", type=int, default=5, help="how many of the five are predicted")
    options = parser.parse_args()
    for name in options.cases.split(","):
        for line in lines(CASES[name](options.data), options.folds):
            more = f", {line['covered']:.1%} covered, {line['in_domain']:.1%} in domain" if "covered" in line else ""
            print(f"{line['case']:55} {line['method']:24} {line['mape']:7.1%} median {line['median']:6.1%}{more}")
            if options.out:
                with options.out.open("a") as file:
                    print(strict_json.dumps(line), file=file)


if __name__ == "__main__":
    main()
