"""What other work disturbed is said below every table of searches, with the causes and the cure, and is not kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console

from convwright.advising import side_by_side
from convwright.advising.advice import Advice
from convwright.advising.advice_text import rows
from convwright.advising.advise import advise
from convwright.advising.tuned import tune
from convwright.core.finding import UNSTABLE
from convwright.errors import BadInput
from convwright.measuring.regression import median_time
from convwright.measuring.timing import Timing
from convwright.report.tables.advice import print_advice
from convwright.report.tables.findings import print_findings
from convwright.report.tables.tuned import print_tuned
from convwright.settings import BUDGETS_US, Mode
from convwright.store.store import Store
from convwright.wording.unstable_text import unstable_sentence

X = torch.randn(1, 2, 8, 8)
WHY = "unstable: 2 rounds, and others had the cores: stop other work on the machine"


@pytest.fixture(autouse=True)
def _disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: WHY)
    monkeypatch.setattr("convwright.advising.advise._MODEL_BUDGET_US", {Mode.QUICK: 20_000.0})
    monkeypatch.setattr("convwright.advising.advise._WHATIF_BUDGET_US", {Mode.QUICK: 20_000.0})


def printed(show: Callable[[Console], object]) -> list[str]:
    out = StringIO()
    show(Console(file=out, width=300))
    return out.getvalue().splitlines()


def test_below_the_tables_of_find_and_tune() -> None:
    store = Store.open(None)
    tuned = tune(torch.nn.Conv2d(2, 4, 3), X, mode="quick", budget_us=20_000.0, store=store)
    (problem,) = tuned.problems
    lines = printed(lambda console: print_findings(problem.findings, console))
    # Real work beside the tests may disturb other rows too, for reasons of its own.
    (line,) = [each for each in lines if "unstable and not kept" in each or "too busy to measure" in each]
    assert "stop other work on the machine" in line
    lines_of_tune = printed(lambda console: print_tuned(tuned, console))
    said = "unstable and not kept (2 rounds, and others had the cores): stop other work on the machine."
    assert f"~: 1 of 1 time is {said}" in lines_of_tune
    assert re.search(r" ~\d", "".join(lines_of_tune)), "the time is marked"
    assert problem.findings.to_json()["unstable"] == WHY
    assert store.summary().devices == (), "nothing is kept"


def test_in_advice() -> None:
    advice = advise(torch.nn.Conv2d(2, 4, 3), X, mode="quick", store=Store.open(None))
    said = "1 of 1 time is unstable and not kept (2 rounds, and others had the cores): stop other work on the machine."
    assert said in str(advice).splitlines()
    assert said in printed(lambda console: print_advice(advice, console))
    (row,) = rows(advice)
    assert row["gain"] == UNSTABLE
    assert advice.to_json()["layers"][0]["unstable"] == WHY


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rounds are disturbed, every other one by far, and all but the model as it is takes half as long."""
    timer = side_by_side.measure_together

    def disturbed(*calls: Any, **asked: Any) -> dict[str, Timing]:
        def shaken(name: str, timing: Timing) -> Timing:
            slopes = [us * (1.0 if name == "as it is" else 0.5) for us in (300.0, 900.0)] * 5
            why = "2 rounds, too many to discard: other work had the cores for 60% of the time: stop it"
            us = median_time(slopes)
            return replace(timing, disturbed=True, unstable=why, call_us=us, round_slopes_us=tuple(slopes))

        return {name: shaken(name, each) for name, each in timer(*calls, **asked).items()}

    monkeypatch.setattr(side_by_side, "measure_together", disturbed)


def test_advice_on_a_busy_machine_rests_on_ratios_where_that_is_asked_for(busy: None) -> None:
    def advice(**asked: Any) -> Advice:
        return advise(torch.nn.Conv2d(2, 4, 3).eval(), X, mode="quick", store=Store.open(None), **asked)

    without, tolerant = advice(), advice(tolerate_load=True)
    assert "The model's time is unstable, so no change of the whole model is compared." in without.notes
    assert str(without).count("stop other work") == 1
    assert not without.suggestions
    (suggestion,) = [each for each in tolerant.suggestions if each.whole_model]
    assert suggestion.what == "the whole model in channels_last"
    assert suggestion.ratio is not None
    assert (suggestion.ratio.low, suggestion.ratio.high) == pytest.approx((0.5, 0.5))
    text = str(tolerant)
    assert text.count("comparisons rest on ratios of rounds side by side.") == 1
    assert "stop other work" not in text
    assert [layer["unstable"] for layer in tolerant.to_json()["layers"]] == [None]


def test_where_the_model_alone_is_disturbed_a_note_says_why(busy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: None)
    found = advise(torch.nn.Conv2d(2, 4, 3).eval(), X, mode="quick", store=Store.open(None))
    (said,) = [note for note in found.notes if note.startswith("The machine is too busy to measure: ")]
    assert "other work had the cores for 60% of the time: stop it." in said
    assert str(found).count("other work had") == 1


def test_a_load_is_tolerated_only_where_something_is_measured() -> None:
    with pytest.raises(BadInput, match="mode heuristic measures nothing, so that `tolerate_load` would be ignored"):
        advise(torch.nn.Conv2d(2, 4, 3), X, mode="heuristic", tolerate_load=True)
    with pytest.raises(BadInput, match="mode heuristic measures nothing, so that `tolerate_load` would be ignored"):
        tune(torch.nn.Conv2d(2, 4, 3), X, mode="heuristic", tolerate_load=True)


@pytest.mark.parametrize(
    ("mode", "cure"), [("quick", "stop other work, or take mode full."), ("full", "stop other work.")]
)
def test_advice_names_no_cure_that_it_has_no_option_for(mode: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "unstable: 2 rounds: stop other work, or give a larger budget"
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: said)
    monkeypatch.setitem(BUDGETS_US, Mode.FULL, 20_000.0)
    for name in ("_MODEL_BUDGET_US", "_WHATIF_BUDGET_US"):
        monkeypatch.setattr(f"convwright.advising.advise.{name}", {Mode.QUICK: 20_000.0, Mode.FULL: 20_000.0})
    text = str(advise(torch.nn.Conv2d(2, 4, 3), X, mode=mode, compiled=False, store=Store.open(None)))
    assert f"1 of 1 time is unstable and not kept (2 rounds): {cure}" in text
    assert "budget" not in text


def test_a_machine_that_is_too_busy_is_one_sentence_with_the_cure() -> None:
    why = "unstable: {} rounds were timed, other work had the cores for {}% of the time (load 7 on 2 cores): stop"
    busy = [why.format(rounds, share) for rounds, share in ((2, 66), (4, 39))]
    since = "other work had the cores for 39 to 66% of the time (load 7 on 2 cores): stop."
    tolerate = " tolerate_load=True (--tolerate-load) compares all the same, by ratios of rounds side by side."
    assert unstable_sentence(busy) == f"The machine is too busy to measure: {since}{tolerate}"
    assert unstable_sentence([*busy, None]) == f"2 of 3 times are unstable and not kept, since {since}{tolerate}"
    since, decides = since.removesuffix(": stop."), "; comparisons rest on ratios of rounds side by side."
    assert (
        unstable_sentence(busy, tolerated=True) == f"The machine is too busy to measure times, since {since}{decides}"
    )
    assert unstable_sentence([*busy, None], tolerated=True) == f"2 of 3 times are unstable, since {since}{decides}"
    slow = f"known to ±9% only, ±1% was asked, after 2 rounds: {since}: give a larger budget; 2 rounds were disturbed"
    assert str(unstable_sentence([slow], tolerated=True)).endswith(f"times, since {since}{decides}")
    assert unstable_sentence([None, None]) is None
    assert unstable_sentence([]) is None
