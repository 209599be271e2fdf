"""Choices on a GPU serve by seasons, and all of them together have to be faster. Here time passes as a test says."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright import flags
from convwright.ops import decide, seasons
from convwright.ops.call import Call
from convwright.ops.form import CONV2D
from convwright.ops.proving import Proving
from convwright.ops.runner import Runner
from convwright.ops.seasons import Seasonal, Seasons
from convwright.ops.slots import Slot
from convwright.tuning.session import Choice
from ops.prefer import GEMM, prefer, randn

X = torch.zeros(1, 1)
DEVICE = torch.device("cuda:0")
MICROSECOND = 1000


class Machine:
    """A clock, a queue, and who has run last: whoever follows on another kind finds the caches full of that."""

    def __init__(self) -> None:
        self.now_ns, self.behind, self.capturing = 0, False, False
        self.company_us, self.last = 0, ""
        self.ran: list[str] = []

    def taking(self, name: str, us: int) -> Callable[..., Tensor]:
        def run(*operands: Tensor | None) -> Tensor:
            kind = name.partition(" ")[0]
            self.now_ns += MICROSECOND * (us + (self.company_us if kind != self.last else 0))
            self.last = kind
            self.ran.append(name)
            return X

        return run


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(seasons, "perf_counter_ns", lambda: made.now_ns)
    monkeypatch.setattr(seasons, "is_behind", lambda device: made.behind)
    monkeypatch.setattr(seasons, "is_capturing", lambda: made.capturing)
    return made


def network(machine: Machine, *each_us: tuple[int, int], among: Seasons | None = None) -> list[Seasonal]:
    """Layers with what ours and PyTorch's own take of the host, in microseconds."""
    among = among or Seasons()
    return [
        Seasonal(machine.taking(f"ours {i}", ours), machine.taking(f"own {i}", own), among, DEVICE, 2.0)
        for i, (ours, own) in enumerate(each_us)
    ]


def passes(machine: Machine, layers: list[Seasonal], times: int = 400, rest_us: int = 900) -> None:
    for _ in range(times):
        for layer in layers:
            layer(X, X)
        machine.now_ns += MICROSECOND * rest_us


def serving(machine: Machine, layers: list[Seasonal]) -> list[str]:
    machine.ran.clear()
    for layer in layers:
        layer(X, X)
    return [name.partition(" ")[0] for name in machine.ran]


def test_what_is_faster_in_its_own_company_serves(machine: Machine) -> None:
    """Taking turns call by call each would have seemed the slower."""
    machine.company_us = 30
    layers = network(machine, (80, 100), (90, 100), (95, 100))
    passes(machine, layers)
    assert serving(machine, layers) == ["ours"] * 3


def test_what_makes_all_of_it_slower_is_given_up(machine: Machine) -> None:
    layers = network(machine, *[(110, 100)] * 8)
    passes(machine, layers, times=1500)
    assert serving(machine, layers) == ["own"] * 8


def test_the_better_half_may_stay(machine: Machine) -> None:
    layers = network(machine, (120, 100), (120, 100), (95, 100), (95, 100))
    passes(machine, layers, times=1000)
    assert serving(machine, layers) == ["own", "own", "ours", "ours"]


def test_after_the_first_year_calls_run_as_they_would_for_good(machine: Machine) -> None:
    layers, served = network(machine, *[(90, 100)] * 10), list[tuple[int, bool | None]]()
    for place, layer in enumerate(layers):
        layer.serve = lambda mine, place=place: served.append((place, mine))  # type: ignore[misc]
    passes(machine, layers, times=20)
    assert {mine for _, mine in served} == {None}
    passes(machine, layers, times=10)
    served.clear()
    passes(machine, layers, times=60)
    assert [layer.gain_us for layer in layers] == [None] * 10
    sides = [{mine for place, mine in served if place == each} for each in range(10)]
    assert sides.count({None}) in (2, 3)  # by whose calls the time is told
    assert sides.count({True, False}) == 10 - sides.count({None})
    passes(machine, layers, times=60)
    assert serving(machine, layers) == ["ours"] * 10


def test_where_it_makes_no_difference_the_search_is_believed(machine: Machine) -> None:
    layers = network(machine, (101, 100), (99, 100))
    passes(machine, layers)
    assert serving(machine, layers) == ["ours"] * 2
    assert [layer.gain_us for layer in layers] == [2.0, 2.0]


def test_one_that_is_far_worse_than_it_seemed_is_out_and_the_others_go_on(machine: Machine) -> None:
    layers = network(machine, (300, 100), (60, 100), (60, 100))
    passes(machine, layers)
    assert serving(machine, layers) == ["own", "ours", "ours"]


def test_seasons_are_long_and_of_one_kind(machine: Machine) -> None:
    layers = network(machine, (90, 100), (90, 100))
    passes(machine, layers, times=14)
    first, *others = [name.partition(" ")[0] for name in machine.ran]
    assert first == "own"
    assert others.index("ours") >= 2 * 6 - 1
    assert sum(a != b for a, b in pairwise(others)) == 1


@pytest.mark.parametrize("ours_us", [50, 1000])
def test_where_the_device_is_behind_its_time_decides(machine: Machine, ours_us: int) -> None:
    machine.behind = True
    layers = network(machine, (ours_us, 100), (ours_us, 100))
    passes(machine, layers, times=12)
    assert serving(machine, layers) == ["ours"] * 2


def test_a_choice_that_gains_no_time_of_the_device_still_holds(machine: Machine) -> None:
    layer = Seasonal(machine.taking("ours", 50), machine.taking("own", 100), Seasons(), DEVICE, -1.0)
    passes(machine, [layer])
    assert serving(machine, [layer]) == ["ours"]


@pytest.mark.parametrize("why", ["capture", "determinism"])
def test_inside_a_capture_and_where_results_must_not_change_the_choice_serves(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    layers = network(machine, (200, 100), (200, 100))
    machine.capturing = why == "capture"
    monkeypatch.setattr(flags, "deterministic", lambda: why == "determinism")
    passes(machine, layers, times=40)
    assert {name.partition(" ")[0] for name in machine.ran} == {"ours"}
    assert [layer.gain_us for layer in layers] == [None, None]


def test_another_layer_begins_it_anew(machine: Machine) -> None:
    among = Seasons()
    layers = network(machine, (120, 100), among=among)
    passes(machine, layers, times=100)
    layers += network(machine, (50, 100), among=among)
    passes(machine, layers)
    assert serving(machine, layers) == ["ours"] * 2


def test_where_the_layer_that_is_counted_comes_no_more_another_is(machine: Machine) -> None:
    layers = network(machine, (80, 100), (80, 100))
    passes(machine, layers, times=20)
    passes(machine, layers[1:], times=4000)
    assert layers[1].gain_us == 2.0


def test_layers_that_are_gone_are_forgotten(machine: Machine) -> None:
    among = Seasons()
    passes(machine, network(machine, (80, 100), (80, 100), among=among), times=3)
    gc.collect()
    assert len(among._members) <= 1  # whose calls are counted is held until another's are


def test_a_result_that_lies_otherwise_is_none_that_pytorch_gives(machine: Machine) -> None:
    layer = Seasonal(machine.taking("ours", 50), lambda *operands: torch.zeros(2, 2).t(), Seasons(), DEVICE, 2.0)
    passes(machine, [layer])
    assert layer.gain_us == 0.0


def test_those_who_wait_for_it_are_told(machine: Machine) -> None:
    told: list[float] = []
    layer = network(machine, (80, 100))[0]
    layer.when_settled(told.append)
    other = layer.instead(layer.ours, layer.own)
    assert isinstance(other, Proving)
    passes(machine, [other])
    assert told == [2.0]


@pytest.mark.parametrize("ours_us", [50, 200])
def test_slots_hold_what_serves(machine: Machine, monkeypatch: pytest.MonkeyPatch, ours_us: int) -> None:
    """Layers of ours, as if this were a GPU: all of a season's kind, bare, and every result right."""
    among, trials = Seasons(), list[Seasonal]()

    def timed(run: Runner, us: int) -> Runner:
        def runs(*operands: Tensor | None) -> Tensor:
            machine.now_ns += us * MICROSECOND
            return run(*operands)

        return runs

    def seasonal(choice: Choice, ours: Runner, own: Runner, call: Call) -> Seasonal:
        trials.append(Seasonal(timed(ours, ours_us), timed(own, 100), among, DEVICE, 2.0))
        return trials[-1]

    def slot_of(w: Tensor) -> Slot | None:
        return next(iter(CONV2D.slots.latest.get(id(w), ())), None)

    prefer(monkeypatch, GEMM)
    monkeypatch.setattr(decide, "_proves", lambda choice, call: True)
    monkeypatch.setattr(decide, "_proving", seasonal)
    CONV2D.slots.forget()
    layers = [(randn(2, 4, 8, 8 + i), randn(6, 4, 3, 3)) for i in range(9)]
    exact = [F.conv2d(x, w) for x, w in layers]
    kinds = set[tuple[int, int]]()
    for _ in range(600):
        for (x, w), right in zip(layers, exact, strict=True):
            slot = slot_of(w)
            if slot is not None and slot.run is None:
                machine.now_ns += 100 * MICROSECOND  # PyTorch's own function, which nobody sees
                assert id(w) in CONV2D.slots.resting
            assert_close(cw.conv2d(x, w), right)
        runs = [slot.run for _, w in layers if (slot := slot_of(w)) is not None]
        tells = sum(run in trials for run in runs)
        kinds.add((tells, sum(run is None for run in runs)))
        machine.now_ns += 1000 * MICROSECOND
    assert len(trials) == 9
    assert {trial.gain_us for trial in trials} == {2.0 if ours_us == 50 else 0.0}
    assert kinds >= {(9, 0), (0, 0) if ours_us == 50 else (0, 9)}
    if ours_us == 50:
        assert any(0 < tells <= 3 and own == 9 - tells for tells, own in kinds)
        assert any(0 < tells <= 3 and own == 0 for tells, own in kinds)
