"""Functions are exchanged wherever a module holds them, and modules that have not changed are not looked through."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
import torch.fx
from torch.nn import functional as F

import convwright as cw
from convwright.eager import enable, slow_path
from convwright.eager.places import Places
from eager.prefer import GEMM, count_calls, prefer, randn


def old() -> str:
    return "old"


def new() -> str:
    return "new"


TO_NEW, TO_OLD = {id(old): new}, {id(new): old}


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("a_module_with_places")
    made.f = made.g = old  # type: ignore[attr-defined]
    sys.modules[made.__name__] = made
    yield made
    sys.modules.pop(made.__name__, None)


def anything(_name: str) -> bool:
    return False


def others(name: str) -> bool:
    return name != "a_module_with_places"


def test_every_name_is_exchanged_and_back(module: ModuleType) -> None:
    places = Places()
    for _ in range(3):
        places.exchange(TO_NEW, others)
        assert module.f is module.g is new
        assert old() == "old"  # this module's own, which is left alone
        places.exchange(TO_OLD, others)
        assert module.f is module.g is old


def test_modules_and_names_that_come_later_are_found(module: ModuleType) -> None:
    places = Places()
    places.exchange(TO_NEW, others)
    module.h = old  # type: ignore[attr-defined]
    late = ModuleType("a_later_module")
    late.f = old  # type: ignore[attr-defined]
    sys.modules[late.__name__] = late
    try:
        places.exchange(TO_NEW, lambda name: others(name) and name != late.__name__)
        assert module.h is late.f is new
        late.k = new  # type: ignore[attr-defined]
        places.exchange(TO_OLD, lambda name: others(name) and name != late.__name__)
        assert late.k is late.f is module.h is module.f is old
    finally:
        del sys.modules[late.__name__]


def test_a_name_that_was_given_to_something_else_is_left_alone(module: ModuleType) -> None:
    places = Places()
    places.exchange(TO_NEW, others)
    module.f = anything  # type: ignore[attr-defined]
    places.exchange(TO_OLD, others)
    assert module.f is anything
    assert module.g is old


def test_a_thorough_look_sees_what_took_the_place_of_another_name(module: ModuleType) -> None:
    places = Places()
    module.k = anything  # type: ignore[attr-defined]
    places.exchange(TO_NEW, others)
    module.k = new  # type: ignore[attr-defined]
    places.exchange(TO_OLD, others)
    assert module.k is new
    places.exchange(TO_OLD, others, thorough=True)
    assert module.k is old


def test_what_was_decided_in_one_block_serves_in_the_next_and_not_between(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    searched: list[object] = []
    decided = slow_path.decided
    monkeypatch.setattr(slow_path, "decided", lambda call: searched.append(call) or decided(call))  # type: ignore[func-returns-value]
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3)
    for _ in range(3):
        with cw.enabled():
            stand_in = F.conv2d
            for _ in range(4):
                F.conv2d(x, w)
        assert not enable.is_enabled()
        before = len(called)
        stand_in(x, w)
        assert len(called) == before
    assert len(searched) == 1
    assert called
    cw.disable()
    with cw.enabled():
        F.conv2d(x, w)
        F.conv2d(x, w)
    assert len(searched) == 2


def test_blocks_of_several_threads_may_overlap() -> None:
    first, second = cw.enabled(), cw.enabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert enable.is_enabled()
    second.__exit__(None, None, None)
    assert not enable.is_enabled()
    assert F.conv2d is torch.conv2d


def test_what_is_imported_between_two_blocks_is_pytorchs_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    late = ModuleType("imported_between")
    with cw.enabled():
        monkeypatch.setitem(sys.modules, late.__name__, late)
        exec("from torch.nn.functional import conv2d", vars(late))
        with cw.enabled():
            pass
    assert late.conv2d is torch.conv2d


class Odd(ModuleType):
    def __eq__(self, other: object) -> bool:
        raise ValueError("no truth here")

    __hash__ = ModuleType.__hash__


def test_odd_modules_and_those_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    places, odd = Places(), Odd("an_odd_module")
    odd.f = old  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, odd.__name__, odd)
    for exchange in (TO_NEW, TO_OLD):
        places.exchange(exchange, lambda name: name != odd.__name__)
    assert odd.f is old
    assert any(module == odd.__name__ for module, _ in places._found)
    monkeypatch.delitem(sys.modules, odd.__name__)
    places.exchange(TO_NEW, lambda name: True)
    assert not any(module == odd.__name__ for module, _ in places._found)


def test_every_trace_holds_the_call_though_most_calls_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "torch/default")
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3)
    for _ in range(20):
        cw.conv2d(x, w)
    for _ in range(20):
        graph = torch.fx.Tracer().trace(lambda x: cw.conv2d(x, w))
        assert [node.target for node in graph.nodes if node.op == "call_function"] == [cw.conv2d]
