"""Beneath every table stands what its times were measured under: what is known, and nothing of what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from convwright.advising.advice import Advice, LayerAdvice
from convwright.advising.tuned import Tuned, TunedProblem
from convwright.backends.cudnn.library import Library, Missing
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.engine.capture.distinct import Posed
from convwright.engine.capture.layers import LayerCall
from convwright.measuring.conditions import Conditions
from convwright.report.benchmarks.result import Asked, Result
from convwright.report.benchmarks.table import print_results
from convwright.report.tables.advice import print_advice
from convwright.report.tables.findings import print_findings
from convwright.report.tables.tuned import print_tuned
from convwright.settings import Mode
from convwright.suites.suite import Row
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings
from convwright.wording.conditions_text import (
    Measured,
    conditions_lines,
    conditions_now,
    measured_in,
    permitted_in,
)
from tuning.made import CPU, PROBLEM, finding

ON_GPU = {
    "device": "a GPU", "convwright": "0.1.0", "commit": "0123456789abcdef-dirty", "torch": "2.13.0+cu130",
    "python": "3.12.1", "cuda": "13.0", "cudnn": "91900", "triton": "3.7.1", "driver": "580.95", "tf32": "allowed",
    "sm_clock_mhz": "1980", "throttle_reasons": "none", "date": "2026-11-20", "mode": "full", "cache": "hot",
}  # fmt: skip
ON_CPU = {"torch": "2.13.0", "onednn": "3.12.0", "threads": "1", "date": "2026-11-20", "cache": "hot"}
HOW = "measured 2026-11-20 · cache hot · 10 samples, 95 % intervals"
WITH = "torch 2.13.0 · oneDNN 3.12.0 · 1 thread"


def facts(known: dict[str, str], **others: str) -> Conditions:
    return tuple((known | others).items())


def known(name: str, time_us: float, conditions: Conditions, *, remembered: bool = False) -> Finding:
    found = finding(name, time_us)
    assert found.measurement is not None
    return replace(found, measurement=replace(found.measurement, conditions=conditions), remembered=remembered)


def findings(
    rows: Sequence[Finding], device: DeviceFacts = CPU, policy: Policy | None = None, problem: ConvProblem = PROBLEM
) -> Findings:
    policy = policy or Policy()
    return Findings(problem, device, policy, Mode.QUICK, choose(rows, rows[0], policy), (), rows[0])


BOTH = findings([known("torch/default", 100.0, facts(ON_CPU)), known("reference/gemm", 50.0, facts(ON_CPU))])

LAYER = LayerCall("conv", PROBLEM, has_bias=False, calls=1)
POSED = Posed(PROBLEM, (LAYER,))


def test_a_gpu() -> None:
    slower = facts(ON_GPU, sm_clock_mhz="1755", throttle_reasons="power-cap")
    assert conditions_lines([Measured(facts(ON_GPU), 24), Measured(slower, 96)]) == [
        "measured 2026-11-20 · cache hot · 24 to 96 samples, 95 % intervals · TF32 allowed",
        "SM 1755 to 1980 MHz · slowed down by power-cap",
        "torch 2.13.0+cu130 · cuDNN 9.19.0 · Triton 3.7.1 · driver 580.95 · convwright 0.1.0 (0123456-dirty)",
    ]


def test_a_cpu() -> None:
    assert conditions_lines([Measured(facts(ON_CPU), 10)]) == [HOW, WITH]


def test_what_is_not_known_is_left_out() -> None:
    assert conditions_lines([Measured((("torch", "2.13"),))]) == ["torch 2.13"]
    assert conditions_lines([Measured(())]) == []
    assert conditions_lines([]) == []


@pytest.mark.parametrize(
    ("remembered", "said"),
    [
        ((False, False), "measured 2026-11-20 to 2026-11-22"),
        ((True, False), "measured 2026-11-20 to 2026-11-22, in part remembered"),
        ((True, True), "measured 2026-11-20 to 2026-11-22, remembered"),
    ],
)
def test_times_of_another_day_say_so(remembered: tuple[bool, bool], said: str) -> None:
    days = ("2026-11-22", "2026-11-20")
    measured = [Measured(facts(ON_CPU, date=day), 10, own) for day, own in zip(days, remembered, strict=True)]
    assert conditions_lines(measured)[0].split(" · ")[0] == said


def test_findings_without_a_date_are_remembered_all_the_same() -> None:
    undated = tuple(pair for pair in facts(ON_CPU) if pair[0] != "date")
    assert conditions_lines([Measured(undated, 10, remembered=True)])[0].startswith("remembered · cache hot · ")


def test_versions_that_differ_all_stand_there() -> None:
    measured = [Measured((("torch", version),)) for version in ("2.12", "2.13", "2.12")]
    assert conditions_lines(measured) == ["torch 2.12 or 2.13"]


def test_what_was_measured_elsewhere_has_its_own_conditions_and_not_those_of_now() -> None:
    measured = [Measured(facts(ON_CPU), 10, remembered=True)]
    assert "torch 9" not in "".join(conditions_lines(measured, (("torch", "9"),)))


def test_where_nothing_was_measured_only_what_holds_now_is_said() -> None:
    assert conditions_lines([], facts(ON_GPU)) == [
        "nothing was measured · TF32 allowed · torch 2.13.0+cu130 · cuDNN 9.19.0 · Triton 3.7.1",
        "driver 580.95 · convwright 0.1.0 (0123456-dirty)",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 10_000])
def test_lines_are_short_at_any_width(width: int) -> None:
    lines = conditions_lines([Measured(facts(ON_GPU, sm_clock_mhz=clock), 24) for clock in ("1755", "1980")])
    narrow = conditions_lines(
        [Measured(facts(ON_GPU, sm_clock_mhz=clock), 24) for clock in ("1755", "1980")], width=width
    )
    assert max(map(len, narrow)) <= min(width, 100)
    assert " · ".join(narrow) == " · ".join(lines)


@pytest.mark.parametrize(
    ("dtype", "device", "arithmetic", "said"),
    [
        (DType.FP32, profile("h200"), {Arithmetic.FP32, Arithmetic.TF32}, "TF32 allowed"),
        (DType.FP32, profile("h200"), {Arithmetic.FP32}, "TF32 not allowed"),
        (DType.FP16, profile("h200"), {Arithmetic.FP16_ACC32, Arithmetic.TF32}, None),
        (DType.FP32, CPU, {Arithmetic.FP32}, None),
        (DType.FP32, profile("t4"), {Arithmetic.FP32, Arithmetic.TF32}, None),
    ],
)
def test_tf32_is_what_the_search_permitted_where_that_is_a_question(
    dtype: DType, device: DeviceFacts, arithmetic: set[Arithmetic], said: str | None
) -> None:
    problem = ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3), padding=1, dtype=dtype)
    rows = [known("torch/default", 100.0, facts(ON_GPU, tf32="as it was then"))]
    found = findings(rows, device, Policy(arithmetic=frozenset(arithmetic)), problem)
    for lines in (
        conditions_lines(measured_in(found, rows)),
        conditions_lines([], permitted_in([found], facts(ON_GPU))),
    ):
        parts = " · ".join(lines).split(" · ")
        assert [part for part in parts if part.startswith("TF32")] == ([] if said is None else [said])


def printed(show: object, *data: object) -> list[str]:
    out = StringIO()
    show(*data, Console(file=out, width=120))  # type: ignore[operator]
    return out.getvalue().splitlines()


def test_beneath_the_table_of_find() -> None:
    lines = printed(print_findings, BOTH)
    assert lines[-2:] == [HOW, WITH]


def test_beneath_the_table_of_tune() -> None:
    tuned = Tuned(CPU, Mode.QUICK, (TunedProblem(POSED, BOTH, 0.1),), (), 0.1)
    assert printed(print_tuned, tuned)[-3:-1] == [HOW, WITH]


def test_beneath_the_table_of_advise_in_both_forms() -> None:
    layers = (LayerAdvice(POSED, BOTH),)
    advice = Advice(CPU, Mode.QUICK, False, layers, None, None, None, (), (), (("torch", "9"),))
    for lines in (printed(print_advice, advice), str(advice).splitlines()):
        assert lines[3:5] == [HOW, WITH]


def test_beneath_the_table_of_a_benchmark() -> None:
    asked = Asked("made", CPU, "quick", Policy())
    remembered = findings([known("torch/default", 100.0, facts(ON_CPU, date="2026-11-02"), remembered=True)])
    records = [asked.record(Row(name, PROBLEM.key), found, 0.1) for name, found in (("a", BOTH), ("b", remembered))]
    results = [Result.of(record) for record in records]
    lines = printed(print_results, results)
    dates = "measured 2026-11-02 to 2026-11-20, in part remembered"
    assert lines[3:5] == [HOW.replace("measured 2026-11-20", dates), WITH]


def test_beneath_a_table_of_which_nothing_was_measured() -> None:
    found = findings([Finding(finding("torch/default", 1.0).candidate, note="was not measured")])
    line, *_ = (line for line in printed(print_findings, found) if line.startswith("nothing was measured"))
    assert f" · torch {torch.__version__}" in line


def test_a_gpu_that_is_elsewhere_is_answered_for_by_the_cudnn_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Library(91900, "made", {})
    monkeypatch.setattr("convwright.wording.conditions_text.conditions", lambda device: (("torch", "2.13"),))
    monkeypatch.setattr("convwright.wording.conditions_text.load", lambda: loaded)
    lines = conditions_lines([], conditions_now(profile("h200")))
    assert lines == ["nothing was measured · torch 2.13 · cuDNN 9.19.0"]
    assert conditions_now(CPU) == (("torch", "2.13"),)
    monkeypatch.setattr("convwright.wording.conditions_text.load", lambda: Missing("is not here"))
    assert conditions_now(profile("h200")) == (("torch", "2.13"),)
