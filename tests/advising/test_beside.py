"""What advice rests on: ratios of runs beside each other, the error rule of searches, and numbers that agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.advising import advise as advising
from convwright.advising import whatif
from convwright.advising.advice import Advice, LayerAdvice
from convwright.advising.advice_text import suggestion_lines
from convwright.advising.gain import Gain, suggest
from convwright.advising.side_by_side import time_pair
from convwright.advising.suggestion import Kind
from convwright.core.finding import Finding, Interval
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.engine.capture.distinct import Posed
from convwright.engine.capture.layers import LayerCall
from convwright.errors import BadInput
from convwright.measuring.compare import Outcome, Verdict
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.choose import choose
from convwright.tuning.findings import Findings
from tuning.made import CPU, finding

PROBLEM = ConvProblem.parse("mb2ic4ih8oc6kh3ph1")
TORCH = finding("torch/default", 100.0)
X = torch.randn(2, 3, 8, 8)
FASTER = Verdict(Outcome.FAST, Interval(0.8, 0.75, 0.9), 31)
SAME = Verdict(Outcome.SAME, Interval(1.0, 0.99, 1.01), 31)
UNCLEAR = Verdict(Outcome.AMBIGUOUS, Interval(0.8, 0.5, 1.2), 31)


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "_MODEL_BUDGET_US", {Mode.QUICK: 60_000.0})
    monkeypatch.setattr(advising, "_WHATIF_BUDGET_US", {Mode.QUICK: 20_000.0})


def layer(*rows: Finding, paired: Verdict | None = None) -> LayerAdvice:
    policy = Policy()
    found = Findings(PROBLEM, CPU, policy, Mode.QUICK, choose((TORCH, *rows), TORCH, policy), (), TORCH)
    return LayerAdvice(Posed(PROBLEM, (LayerCall("conv", PROBLEM, False, 3),)), found, paired)


def test_a_choice_is_as_fast_as_it_was_beside_pytorchs_own_call() -> None:
    fast = layer(finding("triton/plain", 50.0), paired=FASTER)
    assert (fast.now_us.value, fast.best_us.value, fast.speedup) == (100.0, 80.0, 1.25)  # type: ignore[union-attr]
    assert fast.candidate is not None
    assert fast.candidate.id == "triton/plain"
    assert not fast.is_torch


@pytest.mark.parametrize("pair", [SAME, UNCLEAR], ids=["same", "unclear"])
def test_what_was_not_surely_faster_beside_it_is_no_gain(pair: Verdict) -> None:
    row = layer(finding("triton/plain", 50.0), paired=pair)
    assert row.is_torch
    assert row.candidate is TORCH.candidate
    assert (row.speedup, row.gain_us) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("enabled_us", "sentence"),
    [
        (
            Interval(800.0, 750.0, 900.0),
            ". The whole model takes 800 µs under cw.enabled(), 1.25x as fast (1.11 to 1.33).",
        ),
        (
            Interval(1050.0, 1010.0, 1100.0),
            ". But the whole model is slower with them: 1.05 ms under cw.enabled(), 0.95x as fast (0.91 to 0.99). "
            "Leave `cw.enable()` off.",
        ),
        (Interval(990.0, 900.0, 1100.0), ". But the whole model is not surely faster with them: 990 µs under "),
    ],
)
def test_candidates_that_do_not_help_the_whole_model_are_not_recommended(enabled_us: Interval, sentence: str) -> None:
    rows = (layer(finding("triton/plain", 50.0), paired=FASTER),)
    model_us = Interval(1000.0, 995.0, 1005.0)
    advice = Advice(CPU, Mode.QUICK, False, rows, model_us, None, enabled_us, (), (), (("torch", "9"),))
    (said,) = (line for line in str(advice).splitlines() if line.startswith("With the candidates above"))
    assert said.startswith("With the candidates above they take 240 µs, 1.25x as fast")
    assert sentence in said


def test_a_suggestion_says_what_its_ratio_rests_on() -> None:
    fast = layer(finding("triton/plain", 50.0), paired=FASTER)
    (suggestion,) = suggest([Gain(fast, 100.0, 80.0, FASTER)], Kind.EXACT, "this", "so")
    assert suggestion.ratio is not None
    assert (suggestion.ratio.value, suggestion.ratio.low, suggestion.ratio.high) == pytest.approx((0.8, 0.75, 0.9))
    assert "300 µs → 240 µs, 1.25x (1.11 to 1.33, 31 rounds side by side)" in suggestion_lines(1, suggestion)[0]
    (searched,) = suggest([Gain(fast, 100.0, 80.0), Gain(fast, 100.0, 80.0, FASTER)], Kind.EXACT, "this", "so")
    assert "1.25x (times of searches)" in suggestion_lines(1, searched)[0]


@pytest.mark.parametrize(("pair", "gains"), [(FASTER, True), (SAME, False), (UNCLEAR, False), (None, False)])
def test_packing_once_is_suggested_where_it_is_faster_beside(pair: Verdict | None, gains: bool) -> None:
    packed = layer(finding("triton/packed", 50.0, prepare_us=80.0))
    asked: list[tuple[str, str, bool]] = []

    def beside(before: Any, after: Any, packs: bool) -> Verdict | None:
        asked.append((before.id, after.id, packs))
        return pair

    suggestions = whatif.with_constant_weights([packed], beside)
    assert asked == [("torch/default", "triton/packed", False)]
    assert [(each.before_us, each.after_us) for each in suggestions] == ([(300.0, 240.0)] if gains else [])


@pytest.mark.parametrize(("pair", "gains"), [(FASTER, True), (SAME, False), (UNCLEAR, False), (None, False)])
def test_fusing_is_suggested_where_it_is_faster_beside(pair: Verdict | None, gains: bool) -> None:
    alone = layer()
    rows = layer(finding("torch/default", 130.0), finding("triton/fused", 90.0)).findings
    own = next(v.finding for v in rows.verdicts if v.finding.candidate == TORCH.candidate)
    fused = whatif.fused(
        [(alone, whatif.Fusible(alone.posed, False), replace(rows, baseline=own))], lambda *asked: pair
    )
    assert bool(fused) == gains
    for each in fused:
        assert each.scope == "these convolutions and what follows them"
        assert "these convolutions and what follows them" in suggestion_lines(1, each)[0]


def test_two_candidates_are_timed_beside_each_other() -> None:
    problem = cw.problem("ic8ih24oc8kh3ph1")
    found = cw.find(problem, device="cpu", mode="heuristic")
    by_id = {verdict.finding.candidate.id: verdict.finding.candidate for verdict in found.verdicts}
    fast, slow = by_id["torch/default"], by_id["reference/direct"]
    pair = time_pair(fast, slow, found.device, packs=(True, True), budget_us=300_000.0)
    if pair is not None:  # other work on the machine
        assert pair.ratio.low <= pair.ratio.value <= pair.ratio.high
        assert pair.ratio.value > 1
        assert pair.rounds > 0


def test_layers_are_chosen_by_a_pattern() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1)).eval()
    (row,) = cw.advise(net, X, mode="heuristic", layers="2").layers
    assert row.names == ("2",)
    found = cw.advise(net, X, layers="[0-1]", store=Store.open(None))
    assert [each.names for each in found.layers] == [("0",)]
    assert found.optimized is None
    assert not any(each.whole_model for each in found.suggestions)
    assert not any("torch.compile" in note for note in found.notes)
    with pytest.raises(BadInput, match="no layer is called like 'none'; there are 0, 2"):
        cw.advise(net, X, mode="heuristic", layers="none")
    with pytest.raises(BadInput, match="`layers` looks at single layers, so that `compiled` would be ignored"):
        cw.advise(net, X, layers="0", compiled=True)


class Sloppy(nn.Module):
    """In channels last it is off by far more than rounding, and by far less than half of the digits."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.conv, self.by = nn.Conv2d(3, 4, 3), by

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        return y * (1 + self.by) if last else y


def test_exact_is_what_a_search_allows() -> None:
    notes = cw.advise(Sloppy(1e-5).eval(), X, store=Store.open(None)).notes
    (said,) = [note for note in notes if note.startswith("Not offered: the whole model in channels_last")]
    assert "error against float64 would be 1e-05, the model's own is" in said
    assert said.endswith("(2x allowed).")
    allowed = cw.advise(Sloppy(1e-5).eval(), X, policy=Policy(max_error=1e9), store=Store.open(None)).notes
    assert not any(note.startswith("Not offered") for note in allowed)


def test_a_model_that_float64_cannot_compute_has_its_own_outputs_to_compare_with() -> None:
    class Single(Sloppy):
        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype is torch.float32
            return super().forward(x)

    assert not any("Not offered" in note for note in cw.advise(Single(1e-6).eval(), X, store=Store.open(None)).notes)
    notes = cw.advise(Single(1e-2).eval(), X, store=Store.open(None)).notes
    assert any("outputs would differ by 1.0e-02 (relative L2)" in note for note in notes)


def test_torch_compile_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compiles is no matter here, and takes a minute: a model that is slower stands for it."""
    made: list[nn.Module] = []

    def compiled(model: nn.Module) -> nn.Module:
        made.append(model)
        return nn.Sequential(model, Slow())

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(200):
                x = x.relu()
            return x

    monkeypatch.setattr(torch, "compile", compiled)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    found = cw.advise(net, X, compiled=True, store=Store.open(None))
    assert len(made) == 1
    assert made[0] is not net
    assert any(
        n.startswith(("torch.compile is not surely faster: the whole model", "The model's time is"))
        for n in found.notes
    )
    quick = cw.advise(net, X, store=Store.open(None))
    assert len(made) == 1
    assert any("torch.compile was not tried" in note and "compiled=True" in note for note in quick.notes)
    with pytest.raises(BadInput, match="`compiled` would be ignored"):
        cw.advise(net, X, mode="heuristic", compiled=True)


def test_where_torch_compile_fails_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: nn.Module) -> nn.Module:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    notes = cw.advise(nn.Conv2d(3, 4, 3).eval(), X, compiled=True, store=Store.open(None)).notes
    assert any(note.startswith("torch.compile could not be tried: ") and "no compiler" in note for note in notes)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), [2, 3, 8, 8], torch.Size((2, 3, 8, 8))], ids=["tuple", "list", "Size"])
def test_a_shape_is_an_example(shape: Any) -> None:
    model = nn.Conv2d(3, 4, 3, dtype=torch.float64)
    found = cw.advise(model, shape, mode="heuristic")
    assert found.layers[0].problem == cw.problem("mb2ic3ih8oc4kh3 dt:fp64 ep:bias")
    tuned = cw.tune(model, shape, mode="heuristic")
    assert tuned.problems[0].findings.problem == found.layers[0].problem


@pytest.mark.parametrize(
    ("example", "options", "sentence"),
    [
        ((2, 3, 0, 8), {}, r"^a shape as an example must have whole numbers above 0, got \(2, 3, 0, 8\)$"),
        ([2, 3, 8.5, 8], {}, r"^a shape as an example must have whole numbers above 0, got \(2, 3, 8\.5, 8\)$"),
        (X, {"compiled": "yes"}, "^`compiled` must be True or False, got 'yes'$"),
        (X, {"backward": "no"}, "^`backward` must be True or False, got 'no'$"),
    ],
)
def test_mistakes(example: Any, options: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        cw.advise(nn.Conv2d(3, 4, 3), example, mode="heuristic", **options)
