"""Observations of candidates whose times are a known law: physics times a factor that depends on the algorithm and the
tile, with scatter."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, Measurement
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.prediction.features import features

DEVICE = profile("h200")
TEXT = "mb{}ic{}ih{}oc{}kh3ph1 dt:fp16 tag:nhwc"
SLOW, FAST = "engine-1", "engine-2"
SCATTER = 0.05


def problem(random: np.random.Generator) -> ConvProblem:
    mb, ic, ih, oc = (int(2 ** random.uniform(low, high)) for low, high in ((0, 6), (4, 9), (3, 7), (4, 9)))
    return ConvProblem.parse(TEXT.format(mb, ic, ih, oc))


def candidates(of: ConvProblem) -> list[Candidate]:
    """Two engines of cuDNN in two configurations each."""
    return [
        Candidate(of, "cudnn", name, (("k2", knob),), Arithmetic.FP16_ACC32, 0, True, Source.RULE)
        for name in (SLOW, FAST) for knob in (0, 3)
    ]  # fmt: skip


def law(candidate: Candidate) -> float:
    """How many times its physical estimate a candidate takes."""
    return (3.0 if candidate.algorithm == SLOW else 2.0) * (1.2 if candidate.config == (("k2", 3),) else 1.0)


def measured(time_us: float, energy_mj: float | None = None) -> Measurement:
    return Measurement(Interval(time_us, time_us, time_us), None, (), 0, 9, (("cudnn", "91900"),), energy_mj)


def observed(candidate: Candidate, time_us: float, energy_mj: float | None = None) -> Observation:
    return Observation(
        candidate, DEVICE.key, "any", Outcome.MEASURED, measured(time_us, energy_mj), None, (), Policy(), "full", None,
        1.0,
    )  # fmt: skip


@lru_cache
def observations(problems: int = 55, *, seed: int = 0, watts: float | None = None) -> tuple[Observation, ...]:
    random = np.random.default_rng(seed)
    listed = [each for _ in range(problems) for each in candidates(problem(random))]
    times = features(listed, DEVICE).physics_us * np.array([law(each) for each in listed])
    times *= np.exp(SCATTER * random.standard_normal(len(listed)))
    energies = [None if watts is None else float(us) * watts / 1000 for us in times]
    return tuple(observed(each, float(us), mj) for each, us, mj in zip(listed, times, energies, strict=True))


def doubtful(observation: Observation) -> Observation:
    assert observation.measurement is not None
    return replace(observation, measurement=replace(observation.measurement, doubt="unstable"))
