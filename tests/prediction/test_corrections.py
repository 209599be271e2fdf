"""Estimates corrected by a device's own findings."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from math import exp, isfinite
from pathlib import Path
from random import Random

import pytest
import torch

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, Measurement
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.prediction import models
from convwright.prediction.corrections import ESTIMATE, Corrected, kernel_times, predictor_for
from convwright.prediction.estimates import ESTIMATES
from convwright.prediction.learned_times import LearnedTimes
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.budget import Budget
from convwright.tuning.ranking import by_promise
from convwright.tuning.search import Search
from tuning.made import CPU

PROBLEM = ConvProblem.parse("mb8ic64ih56oc64kh3ph1")


def kernel(algorithm: str, rows: int, estimated_us: float, compile_s: float = 0.0) -> Candidate:
    return Candidate(
        PROBLEM, "triton", algorithm, (("rows", rows),), Arithmetic.FP32, 0, True, Source.RULE,
        compiles=True, estimated_us=estimated_us, compile_s=compile_s,
    )  # fmt: skip


def measured(candidate: Candidate, us: float) -> Measurement:
    facts = ((ESTIMATE, str(candidate.estimated_us)),)
    return Measurement(
        device_us=Interval(us, us, us),
        prepare_us=None,
        errors=(),
        workspace_bytes=0,
        samples=9,
        conditions=facts,
    )


def filled(store: Store, count: int) -> None:
    """Findings of a device on which one algorithm takes three times its estimate, the other what its rows say."""
    random = Random(1)
    for place in range(count):
        algorithm, rows, estimated_us = ("slow", "even")[place % 2], 2 ** (place % 4), 10.0 * (1 + place % 5)
        candidate = kernel(algorithm, rows, estimated_us)
        times = (3.0 if algorithm == "slow" else rows**0.5) * exp(random.gauss(0, 0.05))
        store.record(f"problem {place}", CPU.key, candidate.id, "v1", measured(candidate, times * estimated_us), None)


@pytest.fixture
def store() -> Store:
    return Store.open(None)


def test_few_findings_correct_nothing(store: Store) -> None:
    filled(store, 10)
    assert predictor_for(store, CPU) is ESTIMATES


def test_findings_of_a_device_correct_its_estimates(store: Store) -> None:
    filled(store, 200)
    predictor = predictor_for(store, CPU)
    for algorithm, rows, times in (("slow", 4, 3.0), ("even", 1, 1.0), ("even", 8, 8**0.5)):
        said = predictor.predict(kernel(algorithm, rows, 25.0), CPU)
        assert said is not None
        assert said.in_domain
        assert said.time_us.value == pytest.approx(times * 25.0, rel=0.25)
        assert said.time_us.low < times * 25.0 < said.time_us.high


def test_an_algorithm_that_was_never_measured_is_outside_of_the_domain(store: Store) -> None:
    filled(store, 200)
    said = predictor_for(store, CPU).predict(kernel("other", 4, 25.0), CPU)
    assert said is not None
    assert not said.in_domain
    assert said.time_us.high / said.time_us.low > 3
    assert predictor_for(store, CPU).predict(Candidate(*_plain()), CPU) is None


def _plain() -> tuple[object, ...]:
    return PROBLEM, "cudnn", "gemm", (), Arithmetic.FP32, 0, True, Source.RULE


def test_the_learned_model_of_a_device_goes_before_its_findings(store: Store) -> None:
    filled(store, 200)
    h200 = profile("h200")
    model = predictor_for(store, h200)
    assert isinstance(model, LearnedTimes)
    kernels = [kernel("direct", rows, 25.0) for rows in (1, 2, 4)]
    assert kernel_times(store, h200, kernels) == model.roughly_us(kernels, h200)
    assert isinstance(predictor_for(store, CPU), Corrected)


def test_without_a_readable_model_findings_are_used(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "findings.sqlite")) as store:
        filled(store, 200)
        broken = models.folder_beside(tmp_path / "findings.sqlite") / models.file_name(CPU)
        broken.parent.mkdir()
        broken.write_text("no model")
        assert isinstance(predictor_for(store, CPU), Corrected)


def test_more_findings_are_learnt_from_again(store: Store) -> None:
    filled(store, 30)
    before = predictor_for(store, CPU)
    assert predictor_for(store, CPU) is before
    filled(store, 60)
    assert predictor_for(store, CPU) is not before


def test_the_order_follows_the_predictor(store: Store) -> None:
    filled(store, 200)
    slow, even = kernel("slow", 1, 20.0), kernel("even", 1, 30.0)
    assert by_promise([slow, even], CPU) == [slow, even]
    corrected = partial(kernel_times, store, CPU)
    assert by_promise([slow, even], CPU, corrected) == [even, slow]


def test_what_takes_long_to_compile_comes_later_where_time_is_short() -> None:
    fast, soon = kernel("a", 1, 20.0, compile_s=8.0), kernel("b", 1, 30.0, compile_s=0.5)
    assert by_promise([fast, soon], CPU, within_us=30e6) == [fast, soon]
    assert by_promise([fast, soon], CPU, within_us=2e6) == [soon, fast]


@pytest.mark.parametrize("text", ["abc", "nan", "inf", "-3", "0", ""])
def test_an_estimate_that_is_no_number_is_left_out(text: str, store: Store) -> None:
    """Anyone may import findings."""
    filled(store, 100)
    candidate = kernel("slow", 1, 20.0)
    bad = replace(measured(candidate, 60.0), conditions=((ESTIMATE, text),))
    store.record("problem of another", CPU.key, candidate.id, "v1", bad, None)
    said = predictor_for(store, CPU).predict(candidate, CPU)
    assert said is not None
    assert isfinite(said.time_us.value)


def test_it_is_learnt_whatever_device_is_the_default(store: Store) -> None:
    filled(store, 100)
    with torch.device("meta"):
        assert predictor_for(store, CPU) is not ESTIMATES


def test_a_search_without_a_budget_takes_no_account_of_compilers() -> None:
    fast, soon = kernel("a", 1, 20.0, compile_s=8.0), kernel("b", 1, 30.0, compile_s=0.5)
    asked = Search(PROBLEM, CPU, Policy(), Mode.HEURISTIC, Store.open(None), Budget(0.0))
    assert asked.ranked([soon, fast]) == [fast, soon]
