"""Whoever asks for determinism gets the same bits for the same call, from the first call of a process to its last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor

import convwright as cw
from convwright.eager import decision
from convwright.eager.calls.call import CONV2D, stand_ins
from convwright.eager.running import runner as runners
from convwright.settings import settings
from convwright.tuning import session as sessions
from eager.prefer import count_calls, prefer, randn
from tuning.made import FakeTuner

CALLS = 40


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    """In mode quick, where `reference/gemm` is ten times as fast as PyTorch's own call."""
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    settings.cache_clear()
    sessions.session.cache_clear()
    made = FakeTuner({"reference/gemm": 10.0}).in_place(monkeypatch)
    monkeypatch.setattr(decision, "_pays", lambda choices, call: True)
    return made


@contextmanager
def strictly() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def by_cudnns_flag() -> Iterator[None]:
    torch._C._set_cudnn_deterministic(True)  # also where PyTorch's test suite has frozen its flags
    try:
        yield
    finally:
        torch._C._set_cudnn_deterministic(False)


def same_bits(call: Callable[[], Tensor]) -> bool:
    first = call().clone()
    return all(torch.equal(call(), first) for _ in range(CALLS - 1))


FLAGS = pytest.mark.parametrize("asked", [strictly, by_cudnns_flag])


@FLAGS
@pytest.mark.parametrize("grad", [False, True])
def test_under_pytorchs_flags_no_call_searches(asked: Callable, grad: bool, fake: FakeTuner) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32, grad=grad)
    with asked():
        assert same_bits(lambda: cw.conv2d(x, w))
        with cw.enabled():
            assert same_bits(lambda: torch.nn.functional.conv2d(x, w, padding=1))
    assert fake.calls == []


@FLAGS
def test_what_the_store_knows_serves_from_the_first_call(
    asked: Callable, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    with asked():
        cw.find(x, w)
        called = count_calls(monkeypatch)
        assert same_bits(lambda: cw.conv2d(x, w))
    assert len(called) == CALLS


def test_a_policy_is_decided_at_the_first_call_and_stays(fake: FakeTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    called = count_calls(monkeypatch)
    ours = partial(cw.conv2d, x, w, policy=cw.Policy(deterministic=True))
    assert same_bits(ours)
    fake.times_us = {"reference/direct": 1.0}
    (choice,) = sessions.session().chosen
    sessions.session().store.clear()
    sessions.session()._reconsider(choice.candidate.problem)  # as when more has been compiled beside
    ours()
    assert len(called) == CALLS + 1


def test_a_layer_of_pytorchs_own_is_looked_at_each_time(fake: FakeTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that nobody looks at would be PyTorch's, and the next one like it the candidate's."""
    w = randn(4, 4, 3, 3, dtype=torch.float32)
    small, large = (randn(2, 4, size, size, dtype=torch.float32) for size in (8, 16))
    with strictly():
        cw.find(large, w)
        for _ in range(CALLS):
            cw.conv2d(small, w)
        assert not CONV2D.slots.skip_lookup
        called = count_calls(monkeypatch)
        assert same_bits(lambda: cw.conv2d(large, w))
    assert len(called) == CALLS


@pytest.mark.parametrize("around", [nullcontext, cw.enabled])
def test_a_layer_that_rests_is_looked_at_once_determinism_is_asked_for(around: Callable, fake: FakeTuner) -> None:
    """It served another size without a look when nobody asked for the same bits."""
    w = randn(4, 4, 3, 3, dtype=torch.float32)
    small, large = (randn(2, 4, size, size, dtype=torch.float32) for size in (8, 16))
    fake.times_us.clear()  # PyTorch's own call is as fast as any, and need not prove it
    with around():
        conv2d, function = (torch.nn.functional.conv2d, stand_ins()[1]) if around is cw.enabled else (cw.conv2d, CONV2D)
        for _ in range(CALLS):
            conv2d(small, w)
        assert id(w) in function.slots.skip_lookup
        fake.times_us["reference/gemm"] = 10.0
        with strictly():
            cw.find(large, w)
            assert same_bits(lambda: conv2d(large, w))


class Scarce:
    """A workspace that is there as long as ``is_there``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_there, own = True, runners.workspace

        def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
            give = own(nbytes, device)
            return lambda: give() if self.is_there else self.refuse()

        monkeypatch.setattr(runners, "workspace", workspace)

    @staticmethod
    def refuse() -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize("asked", [strictly, by_cudnns_flag, nullcontext])
def test_where_there_is_no_memory_nothing_else_serves(
    asked: Callable, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    called, scarce = count_calls(monkeypatch), Scarce(monkeypatch)
    policy = cw.Policy(deterministic=True) if asked is nullcontext else None
    with asked():
        cw.find(x, w, policy=policy)
        before = cw.conv2d(x, w, policy=policy)
        scarce.is_there = False
        for _ in range(3):
            with pytest.raises(cw.OutOfMemory, match=r"^reference/gemm needs .* equal calls must give equal bits$"):
                cw.conv2d(x, w, policy=policy)
        scarce.is_there = True
        assert torch.equal(cw.conv2d(x, w, policy=policy), before)
    assert len(called) == 2


def test_one_that_cannot_be_built_is_not_replaced_either(fake: FakeTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    ours = partial(cw.conv2d, x, w, policy=cw.Policy(deterministic=True))
    with monkeypatch.context() as patched:
        patched.setattr(sessions, "_plan", lambda candidate, device, maker: Scarce.refuse())
        for _ in range(2):
            with pytest.raises(cw.OutOfMemory, match=r"equal calls must give equal bits$"):
                ours()
    called = count_calls(monkeypatch)
    assert same_bits(ours)
    assert len(called) == CALLS


def test_what_serves_for_want_of_memory_stays_once_a_flag_is_set(
    fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    prefer(monkeypatch, "reference/gemm")
    called, scarce = count_calls(monkeypatch), Scarce(monkeypatch)
    scarce.is_there = False
    with pytest.warns(cw.MemoryWarning):
        assert len([cw.conv2d(x, w) for _ in range(3)]) == 3
    scarce.is_there = True
    with strictly():
        assert same_bits(lambda: cw.conv2d(x, w))
    assert called == []
    for _ in range(8):
        cw.conv2d(x, w)
    assert called != []


def test_what_serves_inside_a_capture_serves_behind_it(fake: FakeTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = randn(2, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, dtype=torch.float32)
    called = count_calls(monkeypatch)
    policy = cw.Policy(deterministic=True)
    with monkeypatch.context() as inside:
        inside.setattr(sessions, "capturing", lambda device: True)
        cw.conv2d(x, w, policy=policy)
    CONV2D.slots.forget()  # as on a GPU, where a slot is made outside of a capture only
    cw.conv2d(x, w, policy=policy)
    assert called == fake.calls == []
