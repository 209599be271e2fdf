"""A chosen candidate serves only where it was faster in use, and both sides of the trial give right results."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.policy import Objective, Policy
from convwright.ops.calls.form import CONV2D
from convwright.ops.calls.slots import Slot
from convwright.ops.deciding import decide
from convwright.ops.running import proving
from convwright.ops.running.proving import Proving, gained_ns
from ops.prefer import GEMM, count_calls, prefer, randn

X = torch.zeros(1)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    CONV2D.slots.forget()


class Clock:
    """Time passes only where something is said to take it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(proving, "perf_counter_ns", lambda: self.now_ns)

    def taking(self, *taken_ns: int, says: list[str], name: str) -> Callable[..., Tensor]:
        taken = chain(taken_ns, iter(lambda: taken_ns[-1], None))

        def run(*operands: Tensor | None) -> Tensor:
            self.now_ns += next(taken)
            says.append(name)
            return X

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def trial(clock: Clock, ours_ns: tuple[int, ...], own_ns: tuple[int, ...]) -> tuple[Proving, list[str], list[float]]:
    says: list[str] = []
    told: list[float] = []
    trial = Proving(clock.taking(*ours_ns, says=says, name="ours"), clock.taking(*own_ns, says=says, name="own"))
    trial.when_settled(told.append)
    for _ in range(60):
        trial(X, X)
    return trial, says, told


def test_what_is_far_ahead_serves_soon(clock: Clock) -> None:
    _, says, told = trial(clock, (9000, 700), (5000, 1000))
    assert told == [0.3]
    assert says[:4] == ["own", "ours", "ours", "own"]
    assert says[12:] == ["ours"] * 48


def test_what_loses_is_given_up_soon(clock: Clock) -> None:
    lost, says, told = trial(clock, (1000,), (999,))
    assert (lost.gain_us, told) == (0.0, [0.0])
    assert says[12:] == ["own"] * 48


@pytest.mark.parametrize(("ours_ns", "gain_us"), [(900, 0.1), (985, 0.0)])
def test_what_is_a_little_ahead_has_to_be_so_for_longer_and_by_more_than_a_tie(
    clock: Clock, ours_ns: int, gain_us: float
) -> None:
    _, says, told = trial(clock, (ours_ns,), (1000,))
    assert told == [gain_us]
    assert says[26:] == ["ours" if gain_us else "own"] * 34


def test_each_two_calls_are_one_of_each(clock: Clock) -> None:
    _, says, _ = trial(clock, (950,), (1000,))
    assert all(set(says[call : call + 2]) == {"ours", "own"} for call in range(0, 26, 2))
    assert says[0:16:2] != ["own"] * 8


def test_a_call_that_was_disturbed_decides_nothing() -> None:
    ours = [700] * 12
    assert gained_ns([*ours[:11], 10**9], [1000] * 12) == 300.0
    assert gained_ns([1000] * 12, [*[1000] * 11, 10**9]) == 0.0


def chosen(monkeypatch: pytest.MonkeyPatch, gain_ns: float | None) -> list[str]:
    """GEMM is preferred, and its trial ends after three pairs as it is told to."""
    proves = decide._proves
    prefer(monkeypatch, GEMM)
    monkeypatch.setattr(decide, "_proves", proves)
    monkeypatch.setattr(proving, "gained_ns", lambda ours, own: gain_ns if len(ours) >= 3 else None)
    return count_calls(monkeypatch)


def only_slot() -> Slot:
    ((slot,),) = CONV2D.slots._by_shape.values()
    return slot


@pytest.mark.parametrize("gain_ns", [1e6, 0.0])
def test_what_has_shown_to_be_faster_stays_in_the_slot(gain_ns: float, monkeypatch: pytest.MonkeyPatch) -> None:
    called = chosen(monkeypatch, gain_ns)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    for call in range(30):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
        if call == 0:
            assert isinstance(only_slot().run, Proving)
    assert not isinstance(only_slot().run, Proving)
    assert (only_slot().run is None) == (gain_ns == 0)
    assert len(called) == (4 if gain_ns == 0 else 26)
    last = cw.last_choice()
    assert last is not None
    assert last.candidate.id == ("torch/default" if gain_ns == 0 else GEMM)
    assert_close(cw.conv2d(x[:, :, 1:], w), F.conv2d(x[:, :, 1:], w))


@pytest.mark.parametrize("gain_ns", [1e9, 1.0, 0.0])
def test_each_direction_of_a_training_step_shows_it(gain_ns: float, monkeypatch: pytest.MonkeyPatch) -> None:
    called = chosen(monkeypatch, gain_ns)
    monkeypatch.setattr(decide, "node_host_us", lambda kind: (25.0, 15.0))
    x, w = randn(2, 4, 8, 8, grad=True), randn(6, 4, 3, 3, grad=True)
    for _ in range(30):
        mine, own = cw.conv2d(x, w), F.conv2d(x, w)
        dy = torch.ones_like(own)
        assert_close(mine, own)
        assert_close(torch.autograd.grad(mine, (x, w), dy), torch.autograd.grad(own, (x, w), dy))
    # The node itself takes 10 us, so three gains of a nanosecond do not pay for it.
    assert (only_slot().run is None) == (gain_ns < 1e9)
    # Behind the fourth pair a direction has shown what it is, the last of them with the last call of the step.
    assert len(called) == (3 * 26 if gain_ns == 1e9 else 3 * 4)


def test_a_call_with_an_activation_goes_to_pytorchs_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, 0.0)
    x, w, residual = randn(2, 4, 8, 8), randn(6, 4, 3, 3), randn(2, 6, 6, 6)
    out = torch.empty_like(residual)
    for _ in range(12):
        expected = torch.relu(F.conv2d(x, w) + residual)
        assert_close(cw.conv2d(x, w, activation="relu", residual=residual), expected)
        cw.conv2d(x, w, activation="relu", residual=residual, out=out)
        assert_close(out, expected)


@pytest.mark.parametrize(
    "asked",
    [
        {"algorithm": GEMM},
        {"policy": Policy(deterministic=True)},
        {"policy": Policy(objective=Objective.WORKSPACE)},
    ],
)
def test_what_was_chosen_for_another_reason_than_time_runs(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = chosen(monkeypatch, 0.0)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    for _ in range(12):
        cw.conv2d(x, w, **asked)
    assert len(called) == 12


def test_results_that_must_be_the_same_each_time_come_from_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    called = chosen(monkeypatch, 0.0)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    torch.use_deterministic_algorithms(True)
    try:
        results = [cw.conv2d(x, w) for _ in range(12)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(called) == 12
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("gain_ns", [1e6, 0.0])
def test_under_autocast_the_casts_are_a_part_of_it(gain_ns: float, monkeypatch: pytest.MonkeyPatch) -> None:
    called = chosen(monkeypatch, gain_ns)
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(12):
            found = cw.conv2d(x, w)
            assert found.dtype is torch.bfloat16
            assert_close(found, F.conv2d(x, w))
    assert (only_slot().run is None) == (gain_ns == 0)
    assert len(called) == (4 if gain_ns == 0 else 8)


def test_what_raises_or_comes_in_several_threads_decides_nothing(clock: Clock) -> None:
    broken = iter([True])

    def ours(*operands: Tensor | None) -> Tensor:
        if len(trial._own_ns) == 0 and trial._calls > 2 and next(broken, False):
            raise MemoryError
        return X

    trial = Proving(ours, lambda *operands: X)
    raised = 0
    for _ in range(40):
        try:
            trial(X, X)
        except MemoryError:
            raised += 1
    assert raised == 1
    assert trial.gain_us == 0.0
    at_once = Proving(lambda *operands: X, lambda *operands: X)
    threads = [threading.Thread(target=lambda: [at_once(X, X) for _ in range(200)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at_once.gain_us is not None


def test_the_tensors_of_the_first_call_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, None)
    w = randn(6, 4, 3, 3, grad=True)
    first = randn(2, 4, 8, 8, grad=True)
    gone = weakref.ref(first)
    cw.conv2d(first, w).sum().backward()
    cw.conv2d(first, w, activation="silu").sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cw.conv2d(first.float(), w.float()).sum().backward()
    del first
    assert gone() is None


def test_flags_that_change_during_a_trial_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    called = chosen(monkeypatch, None)
    x, w = randn(2, 4, 8, 8), randn(6, 4, 3, 3)
    for _ in range(5):
        cw.conv2d(x, w)
    before = len(called)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(10):
            cw.conv2d(x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(called) == before + 10


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_step_that_gains_nothing_is_given_back_whatever_is_around_it(
    activation: str | None, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = chosen(monkeypatch, 0.0)
    x, w = (randn(*shape, dtype=torch.float32, grad=True) for shape in ((2, 4, 8, 8), (6, 4, 3, 3)))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        for _ in range(12):
            cw.conv2d(x, w, activation=activation).sum().backward()
        before = len(called)
        node = cw.conv2d(x, w, activation=activation).grad_fn
        cw.conv2d(x, w, activation=activation).sum().backward()
    assert len(called) == before
    names = []
    while node is not None and len(names) < 6:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert "ConvolutionBackward" not in names
    assert any(name.startswith("ConvolutionBackward0") for name in names)


def test_autocast_to_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            for _ in range(4):
                assert_close(cw.conv2d(x, w), F.conv2d(x, w))
