"""Advice rests on measurements, adds up, and leaves the model as it was."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from convwright.advising import advise as advising
from convwright.advising import optimized as planning
from convwright.advising.advice import Advice, LayerAdvice
from convwright.advising.advise import advise
from convwright.advising.suggestion import Kind
from convwright.core.direction import Direction
from convwright.core.kinds.problem import Problem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.report.tables.advice import print_advice
from convwright.report.words.plain import as_json
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import find
from convwright.tuning.findings import Findings

X = torch.randn(2, 3, 8, 8)


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "_MODEL_BUDGET_US", {Mode.QUICK: 60_000.0})
    monkeypatch.setattr(advising, "_WHATIF_BUDGET_US", {Mode.QUICK: 20_000.0})


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 1))


@pytest.fixture(scope="module")
def advice() -> Advice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advising, "_MODEL_BUDGET_US", {Mode.QUICK: 200_000.0})
        return advise(model().eval(), X, device="cpu", store=Store.open(None))


def test_every_layer_has_its_times_and_a_choice(advice: Advice) -> None:
    assert [layer.names for layer in advice.layers] == [("0",), ("3",)]
    for layer in advice.layers:
        assert layer.now_us is not None
        assert layer.best_us is not None
        assert layer.candidate is not None
        assert layer.gain_us == pytest.approx(layer.calls * (layer.now_us.value - layer.best_us.value))
        assert layer.speedup == pytest.approx(layer.now_us.value / layer.best_us.value)
        assert layer.is_torch == (layer.candidate.id == "torch/default")


def test_the_whole_is_the_sum_of_its_parts(advice: Advice) -> None:
    assert advice.convolutions_us == pytest.approx(sum(layer.now_us.value for layer in advice.layers))
    assert advice.best_us == pytest.approx(sum(layer.best_us.value for layer in advice.layers))
    assert advice.model_us is not None
    assert advice.share == pytest.approx(advice.convolutions_us / advice.model_us.value)
    assert advice.model_host_us is None  # a CPU is its own host


def test_suggestions_say_what_they_gain_and_how_it_is_done(advice: Advice) -> None:
    gains = [suggestion.gain_us for suggestion in advice.suggestions]
    assert gains == sorted(gains, reverse=True)
    for suggestion in advice.suggestions:
        assert suggestion.what
        assert suggestion.how
        assert suggestion.kind is Kind.RETRAINING or suggestion.gain_us > 0
        if suggestion.whole_model:
            assert suggestion.before_us == advice.model_us.value
        else:
            assert suggestion.layers


def test_as_text_and_as_data(advice: Advice) -> None:
    text = str(advice)
    assert "mb2ic3oc6ih8kh3ph1" in text
    assert "2 convolutions, 2 of them distinct, take" in text
    assert all(suggestion.what in text for suggestion in advice.suggestions)
    data = json.loads(as_json(advice.to_json()))
    assert data["convolutions_us"] == pytest.approx(advice.convolutions_us)
    assert data["layers"][0]["problem"] == advice.layers[0].problem.key
    assert [each["kind"] for each in data["suggestions"]] == [str(each.kind) for each in advice.suggestions]
    assert data["conditions"]["torch"] == torch.__version__


def test_a_training_step_in_training_mode_and_nothing_changes() -> None:
    net = model()
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = advise(net, X, backward=True, store=Store.open(None))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training
    directions = {layer.problem.direction for layer in found.layers}
    assert directions == set(Direction)
    assert found.model_us is not None or any("time is not known" in note for note in found.notes), "other work ran"
    assert not any(suggestion.kind is Kind.INFERENCE for suggestion in found.suggestions)


def test_under_enabled_the_whole_model_is_measured_where_something_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(advising, "time_enabled", lambda *args, **options: asked.append(args))
    found = advise(model().eval(), X)
    assert len(asked) == (0 if all(layer.is_torch for layer in found.layers) else 1)


def test_what_the_model_takes_under_enabled() -> None:
    from convwright.advising.whole_model import time_enabled
    from convwright.eager.enable import is_enabled
    from convwright.engine.capture.example import Subject
    from convwright.measuring.hardware.machine import device_facts

    seen: list[bool] = []

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(is_enabled())
            return nn.functional.conv2d(x, torch.ones(3, 3, 1, 1))

    took = time_enabled(Subject.of(Net(), X), device_facts("cpu"), None, 1e4, backward=False, budget_us=200_000.0)
    assert took is None or took.ratio.low <= took.ratio.value <= took.ratio.high
    assert set(seen) == {True, False}
    assert seen[0]
    assert not is_enabled()


def test_where_times_are_unstable_nothing_is_said_to_be_as_good(
    advice: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LayerAdvice, "is_torch", property(lambda layer: True))
    monkeypatch.setattr(LayerAdvice, "unstable", property(lambda layer: None))
    assert "PyTorch's own calls are as good as anything that was found for them." in str(advice)
    monkeypatch.setattr(LayerAdvice, "unstable", property(lambda layer: "unstable: stop other work"))
    count = len(advice.layers)
    sentence = f"Nothing was surely faster than PyTorch's own calls, but the times of {count} of {count} are unstable."
    assert sentence in str(advice)
    assert "as good as" not in str(advice)


def test_to_enable_is_no_part_of_what_a_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as a small model, in which nobody enables at each step."""
    from convwright.advising import whole_model
    from convwright.eager.enable import enabled
    from convwright.engine.capture.example import Subject
    from convwright.measuring.hardware.machine import device_facts

    @contextmanager
    def slow(**options: Any) -> Iterator[None]:
        with enabled(**options):
            time.sleep(0.02)
            yield
            time.sleep(0.02)

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            time.sleep(1e-3)
            return x

    monkeypatch.setattr(whole_model, "enabled", slow)
    subject, cpu = Subject.of(Net(), X), device_facts("cpu")
    took = whole_model.time_enabled(subject, cpu, None, 1e3, backward=False, budget_us=500_000.0)
    assert took is None or took.ratio.value < 1.5


def test_in_mode_heuristic_nothing_runs_but_the_recording() -> None:
    runs: list[int] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            runs.append(1)
            return self.conv(x)

    found = advise(Net(), X, mode="heuristic", store=Store.open(None))
    assert len(runs) == 1
    assert (found.model_us, found.convolutions_us, found.suggestions) == (None, None, ())
    assert found.layers[0].now_us is None
    assert found.notes[0].startswith("Nothing ran in mode heuristic")


def test_what_is_elsewhere_is_not_measured_in_full() -> None:
    with pytest.raises(
        BadInput, match="NVIDIA H200 is not in this machine: nothing is measured, so that mode full would be ignored"
    ):
        advise(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8), device="h200", mode="full", store=Store.open(None))


def test_a_device_that_is_elsewhere_has_limits_and_candidates() -> None:
    net, x = model().eval().to("meta", torch.float16), X.to("meta", torch.float16)
    found = advise(net, x, device="h200", store=Store.open(None))
    assert found.notes == ("NVIDIA H200 is not in this machine: limits and candidates are known, times are not.",)
    assert found.limit_us is not None
    assert found.limit_us == pytest.approx(sum(layer.limit_us for layer in found.layers))
    assert all(layer.candidate is not None and layer.best_us is None for layer in found.layers)
    assert "none of these candidates takes less than" in str(found)
    assert "now µs" not in str(found), "a column without any value is left out"


def test_only_the_top_rows_are_shown() -> None:
    found = advise(model().eval(), X, mode="heuristic", top=1, store=Store.open(None))
    assert len(found.layers) == 2
    assert "1 more distinct problems are not shown." in str(found)


def test_a_model_without_convolutions() -> None:
    found = advise(nn.Linear(3, 4), torch.ones(2, 3), store=Store.open(None))
    assert found.layers == ()
    assert "No supported convolution runs in this model." in str(found)


def test_what_is_left_out_is_said() -> None:
    found = advise(nn.Conv2d(3, 3, 3, dtype=torch.complex64), X.to(torch.complex64), store=Store.open(None))
    assert "Conv2d is left out:" in str(found)


def test_progress_reaches_its_end() -> None:
    told: list[tuple[int, int]] = []
    advise(model().eval(), X, store=Store.open(None), progress=lambda done, total, what: told.append((done, total)))
    assert [done for done, _ in told] == list(range(len(told)))
    assert {total for _, total in told} == {told[-1][0]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "off"}, "mode must be one of heuristic, predict, predict-top, quick, full, got 'off'"),
        ({"top": 0}, "`top` must be at least 1, got 0"),
        ({"top": "ten"}, "`top` must be at least 1, got 'ten'"),
        ({"policy": 3}, "`policy` must be a Policy or None, got 3"),
        ({"device": "gtx480"}, "gtx480"),
    ],
)
def test_mistakes(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        advise(model(), X, store=Store.open(None), **options)


def test_an_example_that_a_model_writes_to_is_restored() -> None:
    x = torch.randn(2, 3, 8, 8)
    before = x.clone()
    net = nn.Sequential(nn.Conv2d(3, 4, 1))
    net.register_forward_pre_hook(lambda module, args: (args[0].mul_(1.0001),))
    advise(net, x, device="cpu", store=Store.open(None))
    assert torch.equal(x, before)


# The estimate for optimize.


def test_advice_ends_with_what_optimize_would_give(advice: Advice) -> None:
    planned = advice.optimized
    assert planned is not None
    assert (planned.refused, planned.steps, planned.unmeasured, planned.layout) == (None, 2, 0, Layout.NCHW)
    assert 0 < planned.modelled_us <= planned.own_us
    last, more = str(advice).splitlines()[-2:]
    assert last.startswith("cw.optimize(model, example) would run 2 steps, estimated at ")
    assert "timed alone, in nchw. optimize also tries the other layout" in more
    assert json.loads(as_json(advice.to_json()))["optimized"]["steps"] == 2
    written = io.StringIO()
    print_advice(advice, Console(file=written, width=200))
    assert written.getvalue().splitlines()[-2:] == [last, more]


def test_what_the_advice_measured_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: dict[str, bool] = {}

    def noted(problem: Problem, *args: Any, **how: Any) -> Findings:
        found = find(problem, *args, **how)
        remembered[problem.key] = all(v.finding.remembered for v in found.verdicts if v.finding.measurement)
        return found

    monkeypatch.setattr(planning, "find", noted)
    found = advise(model().eval(), X, store=Store.open(None))
    assert found.optimized is not None
    assert remembered
    assert all(remembered.values())


class Branching(nn.Module):
    """A model that cannot be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y if y.sum() > 0 else -y


@pytest.mark.parametrize(
    ("net", "example", "why"),
    [
        (Branching().eval(), X, "the model cannot be exported as a whole: "),
        (nn.Conv2d(3, 4, 1).train(), X, "the model is in training mode: call model.eval() first"),
        (nn.Conv2d(3, 4, 1).eval(), {"input": X}, "it takes an example that is a tensor, or a tuple of tensors"),
        (lambda x: nn.functional.conv2d(x, torch.ones(4, 3, 1, 1)), X, "it takes a model that is an nn.Module"),
    ],
)
def test_why_there_is_no_such_plan_is_one_sentence(net: Any, example: Any, why: str) -> None:
    found = advise(net, example, store=Store.open(None))
    assert found.optimized is not None
    assert found.optimized.refused is not None
    assert found.optimized.refused.startswith(why)
    assert (
        str(found).splitlines()[-1] == f"cw.optimize(model, example) cannot plan this model: {found.optimized.refused}."
    )


def test_a_plan_has_the_layout_of_the_model() -> None:
    net, x = model().eval().to(memory_format=torch.channels_last), X.to(memory_format=torch.channels_last)
    found = advise(net, x, store=Store.open(None))
    assert found.optimized is not None
    assert (found.optimized.layout, found.optimized.steps) == (Layout.NHWC, 2)


def test_no_engine_trains() -> None:
    assert advise(nn.Conv2d(3, 4, 1), X, backward=True, store=Store.open(None)).optimized is None
    assert advise(nn.Conv2d(3, 4, 1).eval(), X, mode="heuristic", store=Store.open(None)).optimized is None
