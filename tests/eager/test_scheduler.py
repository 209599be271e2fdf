"""When a call is decided: at its second meeting, unless shapes vary; then only what the time that has passed allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from timeit import timeit
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.policy import Policy
from convwright.eager import scheduler as room
from convwright.eager.calls.call import CONV2D
from convwright.eager.scheduler import scheduler
from convwright.tuning import session as sessions
from convwright.tuning.asked import named
from convwright.tuning.session import Answer, Choice, Question, Session
from eager.each_form import in_mode
from eager.prefer import randn
from eager.resnet import ResNet


class Searches(list[str]):
    """The problems searched so far, as on a GPU, where calls search."""

    def answer(self, session: Session, key: Question, device: Any, eager: Any) -> Answer:
        self.append(key.problem.key)
        if key.algorithm is not None:
            choice = Choice(named(key.algorithm, key.problem, device, Policy()), device)
        else:
            own = session.torchs_own(key.problem, device, key.policy)
            assert own is not None
            choice = own
        return Answer(choice, choice)


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Searches]:
    in_mode("quick", monkeypatch)
    made = Searches()
    monkeypatch.setattr(Session, "_answered", lambda *given: made.answer(*given))
    monkeypatch.setattr(sessions, "SEARCHED", ("cpu", "cuda"))
    return made


def image(size: int, channels: int = 4) -> Tensor:
    return randn(1, channels, size, size, seed=size)


def weights(count: int = 1) -> list[Tensor]:
    return [randn(4, 4, 3, 3, seed=i) for i in range(count)]


def test_a_layers_shape_is_decided_at_its_second_call(searches: Searches) -> None:
    (w,), x = weights(), image(8)
    for call in range(1, 6):
        assert_close(cw.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1))
        assert len(searches) == (call >= 2)
    for given in (x.clone(), x * 2):
        cw.conv2d(given, w, padding=1)
    assert len(searches) == 1


def test_layers_of_one_shape_share_what_was_decided(searches: Searches) -> None:
    x = image(8)
    for _ in range(3):
        for w in weights(5):
            assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    assert len(searches) == 1


def test_each_direction_is_decided_when_a_gradient_is_wanted(searches: Searches) -> None:
    layer, x = nn.Conv2d(4, 4, 3), image(8).float().requires_grad_()
    with cw.enabled():
        for call in range(1, 4):
            layer(x).sum().backward()
            assert len(searches) == (3 if call >= 2 else 0)
        with torch.no_grad():
            layer(x)
    assert len(searches) == 3


def test_a_model_is_decided_at_its_second_run(searches: Searches) -> None:
    model, x = ResNet().eval(), torch.randn(1, 3, 40, 40)
    with cw.enabled(), torch.no_grad():
        model(x)
        assert searches == []
        model(x)
        decided = len(searches)
        assert decided == len(set(searches)) > 5
        model(x)
    assert len(searches) == decided


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("step", [1, 4, 32])
@pytest.mark.parametrize("training", [False, True])
def test_two_hundred_sizes_are_never_searched(step: int, training: bool, searches: Searches) -> None:
    """Behind the last strides the sizes of neighbours are the same: those layers see each shape again and again."""
    model = ResNet(width=2).train(training)
    with cw.enabled():
        for i in range(200):
            x = torch.zeros(2, 3, 33 + (i * step) % 211, 40 + i % 7)
            with torch.set_grad_enabled(training):
                y = model(x)
            if training:
                y.sum().backward()
    assert searches == []


def test_what_varied_and_is_steady_again_is_decided(searches: Searches) -> None:
    model = ResNet(width=2).eval()
    with cw.enabled(), torch.no_grad():
        for size in (40, 50, 60):
            model(torch.zeros(1, 3, size, size))
        assert searches == []
        for _ in range(400):
            model(torch.zeros(1, 3, 64, 64))
        decided = len(searches)
        assert decided > 5
        model(torch.zeros(1, 3, 64, 64))
    assert len(searches) == decided


def test_a_layer_that_is_used_at_several_sizes_in_one_model_is_decided_after_some_runs(searches: Searches) -> None:
    """As the head of a detector is, at each level of its pyramid."""
    (w,), sizes = weights(), (5, 7, 9, 11)
    for _ in range(40):
        for size in sizes:
            assert_close(cw.conv2d(image(size), w), F.conv2d(image(size), w))
    assert len(searches) == len(sizes)


def test_a_detector_of_one_size_is_decided_within_few_runs(searches: Searches) -> None:
    model, head = ResNet(width=2).eval(), nn.Conv2d(4, 4, 3, padding=1)
    with cw.enabled(), torch.no_grad():
        for _ in range(4):
            model(torch.zeros(1, 3, 40, 40))
            for size in (5, 7, 9):
                head(torch.zeros(1, 4, size, size))
    assert len(searches) == len(set(searches)) == 14


def test_a_layer_of_very_many_sizes_is_not_searched_for_each(searches: Searches) -> None:
    (w,), sizes = weights(), range(5, 40)
    for _ in range(60):
        for size in sizes:
            cw.conv2d(image(size), w)
    assert searches == []


def test_where_the_last_batch_is_smaller_training_goes_on(searches: Searches) -> None:
    model = ResNet(width=2)

    def epoch() -> set[str]:
        for batch in (4, 4, 4, 2):
            model(torch.randn(batch, 3, 40, 40)).sum().backward()
        return {key.partition("ic")[0].rpartition("mb")[2] for key in searches}

    with cw.enabled():
        assert epoch() == {"4"}
        assert any(epoch() == {"4", "2"} for _ in range(200))


def test_fresh_weights_are_decided_after_enough_that_are_alike(searches: Searches) -> None:
    x, kept = image(8), weights(room._ALIKE + 20)
    for i, w in enumerate(kept, 1):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
        assert len(searches) == (i >= room._ALIKE)
    slots = CONV2D.slots
    assert sum(len(alike) for alike in slots._by_shape.values()) == 1


def test_a_weight_that_takes_the_place_of_another_is_the_same_layer(searches: Searches) -> None:
    x, ids = image(8), set()
    for i in range(20):
        w = randn(4, 4, 3, 3, seed=i)
        ids.add(id(w))
        cw.conv2d(x, w)
        del w
    assert len(ids) < 20
    assert len(searches) == 1


@pytest.mark.parametrize("mode", ["quick", "heuristic", "full"])
def test_what_is_asked_for_is_decided_at_once(mode: str, searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    in_mode(mode, monkeypatch)
    (w,), x = weights(), image(8)
    cw.conv2d(x, w, algorithm="reference/gemm")
    assert len(searches) == 1
    cw.conv2d(x, w, policy=Policy(max_workspace_bytes=0))
    assert len(searches) == 2
    with cw.algorithms(forward="reference/gemm"):
        cw.conv2d(x, w, None, 2)
    assert len(searches) == 3
    with scheduler.hurried():
        cw.conv2d(x, w, None, 3)
    assert len(searches) == 4
    cw.conv2d(image(9), w)
    assert len(searches) == (4 if mode == "quick" else 5)


def test_in_mode_off_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    in_mode("off", monkeypatch)
    monkeypatch.setattr(sessions, "find", None)
    monkeypatch.setattr("convwright.eager.slow_path.decide", None)
    (w,) = weights()
    for size in range(5, 30):
        for _ in range(2):
            assert_close(cw.conv2d(image(size), w), F.conv2d(image(size), w))
            assert_close(cw.conv2d(image(size), w, activation="relu"), F.conv2d(image(size), w).relu())
    monkeypatch.undo()
    in_mode("off", monkeypatch)
    assert_close(cw.conv2d(image(8), w, algorithm="reference/gemm"), F.conv2d(image(8), w))


def test_a_policy_for_all_functions_waits_unless_pytorch_could_break_it(searches: Searches) -> None:
    (w,) = weights()
    with cw.enabled(policy=Policy(max_workspace_bytes=0)):
        for size in range(5, 30):
            F.conv2d(image(size), w)
        assert searches == []
    with cw.enabled(policy=Policy(deterministic=True)):
        F.conv2d(image(50), w)
    assert len(searches) == 1


@pytest.mark.parametrize("grad", [False, True])
def test_conv2d_into_waits_too(grad: bool, searches: Searches) -> None:
    w = randn(2, 4, 3, 3).requires_grad_(grad)

    def both(size: int) -> None:
        buffer, x = torch.zeros(1, 6, size, size, dtype=torch.float64), image(size)
        buffer[:, :4] = x
        cw.conv2d_into(buffer[:, 4:], buffer[:, :4], w, padding=1)
        assert_close(buffer[:, 4:], F.conv2d(x, w, padding=1))

    for size in range(5, 25):
        both(size)
    assert searches == []
    scheduler.forget()
    for _ in range(3):
        both(30)
    assert len(searches) == 1 + grad


def test_a_chain_in_one_buffer_may_be_decided_in_part(searches: Searches) -> None:
    """PyTorch's own functions write some slices and chosen candidates others; gradients are right."""
    first, second = (randn(2, 2 + 2 * i, 3, 3, seed=i).requires_grad_() for i in range(2))
    x = randn(1, 2, 6, 6, seed=5)

    def run() -> tuple[Tensor, ...]:
        buffer = torch.zeros(1, 6, 6, 6, dtype=torch.float64)
        buffer[:, :2] = x
        cw.conv2d_into(buffer[:, 2:4], buffer[:, :2], first, padding=1, activation="relu")
        cw.conv2d_into(buffer[:, 4:], buffer[:, :4], second, padding=1, activation="relu")
        return torch.autograd.grad(buffer.square().sum(), (first, second))

    y = F.conv2d(x, first, padding=1).relu()
    z = F.conv2d(torch.cat([x, y], 1), second, padding=1).relu()
    expected = torch.autograd.grad(y.square().sum() + z.square().sum(), (first, second))
    with scheduler.hurried():
        buffer = torch.zeros(1, 6, 6, 6, dtype=torch.float64)
        cw.conv2d_into(buffer[:, 2:4], buffer[:, :2], first, padding=1, activation="relu")
    assert len(searches) == 2
    for _ in range(3):
        assert_close(run(), expected)


def test_memory_is_bounded(searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MOST_REMEMBERED", 100)
    monkeypatch.setattr("convwright.eager.calls.slots._MOST_WEIGHTS", 10)
    monkeypatch.setattr("convwright.eager.calls.slots._MOST_KINDS", 10)
    kept = weights(30)
    for size in range(5, 20):
        x = image(size)
        for w in kept:
            cw.conv2d(x, w)
            assert scheduler._known <= 100
            assert sum(len(kinds) for kinds in scheduler._kinds.values()) == scheduler._known
            assert len(CONV2D.slots.latest) <= 10
            assert len(CONV2D.slots._by_shape) <= 10
        with scheduler.hurried():
            cw.conv2d(x, kept[0], None, 2)


def test_a_look_is_rare_where_shapes_vary(searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    (w,), looked = weights(), []
    judge = scheduler.when
    monkeypatch.setattr(scheduler, "when", lambda call: (looked.append(call.x.shape), judge(call))[1])
    for i in range(1000):
        cw.conv2d(image(5 + i % 100), w)
    assert len(looked) <= 60


@pytest.mark.first_cases(4)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("activation", [None, "none", "relu", "silu"])
@pytest.mark.parametrize("fresh", [False, True])
def test_layers_of_many_shapes_compute_all_that_was_asked_for(
    activation: str | None, grad: bool, fresh: bool, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_ALIKE", 5)
    behind: Any = getattr(F, activation or "none", lambda y: y)
    kept, b = weights(120), randn(4)
    for i in range(120):
        w = kept[i if fresh else 0].requires_grad_(grad)
        x, residual = image(5 + i % 50), randn(1, 4, 3 + i % 50, 3 + i % 50)
        assert_close(cw.conv2d(x, w, b, activation=activation), behind(F.conv2d(x, w, b)))
        assert_close(cw.conv2d(x, w, activation=activation, residual=residual), behind(F.conv2d(x, w) + residual))
        assert_close(cw.conv_transpose2d(x, w, activation=activation), behind(F.conv_transpose2d(x, w)))
        with torch.no_grad():
            out = torch.empty_like(residual)
            assert_close(cw.conv2d(x, w, activation=activation, out=out), behind(F.conv2d(x, w)))
    assert len(searches) <= 3


def test_bad_input_is_refused_for_a_layer_of_many_shapes() -> None:
    w, wide = randn(4, 4, 3, 3), randn(4, 3, 3, 3)
    for size in range(5, 60):
        with suppress(cw.BadInput):
            cw.conv2d(image(size), w)
    for _ in range(70):
        with pytest.raises(cw.BadInput, match="channels"):
            cw.conv2d(image(20), wide)
        with pytest.raises(cw.BadInput, match="reaches over"):
            cw.conv2d(image(2), w)
        with pytest.raises(cw.BadInput, match="`bias` must have shape"):
            cw.conv2d(image(30), w, torch.zeros(3, dtype=torch.float64))


def test_a_call_of_ever_new_shape_costs_little_more_than_pytorchs() -> None:
    """Measured on tiny inputs, by turns; the limit is far above what it takes, since this machine may be busy."""
    w, images = randn(4, 4, 3, 3).float(), [image(5 + i).float() for i in range(60)]

    def seconds(function: Any) -> float:
        return timeit(lambda: [function(x, w, None, 1, 1) for x in images], number=1)

    with torch.no_grad():
        for _ in range(30):
            seconds(cw.conv2d)
        turns = [(seconds(cw.conv2d), seconds(F.conv2d)) for _ in range(60)]
    assert min(ours for ours, _ in turns) < 1.5 * min(own for _, own in turns)
