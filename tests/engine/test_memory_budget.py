"""What an engine keeps in memory: within a budget, in an order in which little is alive, written over what ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from convwright.core.policy import Policy
from convwright.engine.blueprint import Blueprint
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.optimize import optimize
from convwright.engine.planning.lifetimes import Lifetimes
from convwright.errors import BadInput, Refused
from convwright.graph.memory_plan import aligned, lower_bound
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.asked import named
from engine.net import Net
from engine.random_network import RandomNetwork

X = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(1))


def smallest(model: nn.Module, x: Tensor) -> int:
    """The amount that a refusal names."""
    with pytest.raises(Refused, match="the smallest possible is") as raised:
        optimize(model, x, mode=Mode.HEURISTIC, memory_budget=1)
    return int(str(raised.value).rpartition(" ")[2].replace(",", ""))


def residual() -> nn.Module:
    torch.manual_seed(0)
    convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(model: Any, x: Tensor) -> Tensor:
        for conv in model.convs:
            x = (x + conv(x)).relu()
        return x

    return Net(forward, convs=convs).eval()


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("model", [residual(), RandomNetwork(2), RandomNetwork(8)])
def test_the_named_amount_is_enough_and_a_byte_less_is_not(model: nn.Module) -> None:
    x = torch.randn(2, 4, 8, 8) if isinstance(model, RandomNetwork) else X
    named = smallest(model, x)
    engine = optimize(model, x, mode=Mode.HEURISTIC, memory_budget=named)
    assert engine.memory_report().peak <= named
    with torch.no_grad():
        assert_close(engine(x), model(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(Refused, match=f"a memory budget of {named - 1:,} bytes: the smallest possible is {named:,}"):
        optimize(model, x, mode=Mode.HEURISTIC, memory_budget=named - 1)


def test_the_smallest_amount_of_a_chain_is_two_images() -> None:
    """Each convolution reads one image and writes another, and the first reads the caller's."""
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(5))).eval()
    assert smallest(model, X) == 2 * X.numel() * 4


def test_a_budget_that_is_large_enough_changes_nothing() -> None:
    plain, limited = (optimize(residual(), X, mode=Mode.HEURISTIC, memory_budget=each) for each in (None, 1 << 30))
    assert limited.assignment.steps == plain.assignment.steps


@pytest.mark.parametrize("budget", [0, -1, 1.5, "1MB", True])
def test_what_is_no_amount_is_refused(budget: Any) -> None:
    with pytest.raises(BadInput, match="`memory_budget` must be a whole number of bytes above 0"):
        optimize(residual(), X, mode=Mode.HEURISTIC, memory_budget=budget)


def test_parts_have_no_budget() -> None:
    with pytest.raises(BadInput, match="exported as a whole"):
        optimize(residual(), X, mode=Mode.HEURISTIC, partial=True, memory_budget=1 << 30)


# The order of steps.


def test_branches_are_computed_one_after_the_other() -> None:
    """Each widens and narrows again; the model computes all wide images first."""
    torch.manual_seed(0)
    wide = nn.ModuleList(nn.Conv2d(4, 64, 1) for _ in range(3))
    narrow = nn.ModuleList(nn.Conv2d(64, 4, 1) for _ in range(3))

    def forward(model: Any, x: Tensor) -> Tensor:
        images = [conv(x) for conv in model.wide]
        return torch.cat([conv(image) for conv, image in zip(model.narrow, images, strict=True)], 1)

    model = Net(forward, wide=wide, narrow=narrow).eval()
    engine = optimize(model, X, mode=Mode.HEURISTIC)
    image = X.numel() * 4
    assert engine.memory_report().peak <= (16 + 3 + 3) * image
    with torch.no_grad():
        assert_close(engine(X), model(X), rtol=1e-4, atol=1e-5)


# Steps in place.


def into(model: nn.Module, *inputs: Tensor) -> Engine:
    """An engine whose expressions write to the arena, where they can."""
    engine, facts = optimize(model.eval(), inputs, mode=Mode.HEURISTIC), device_facts("cpu")
    steps = []
    for step in engine.assignment.steps:
        if step.operation.kind == "pointwise":
            try:
                own = named("torch/into", step.operation, facts, Policy())  # type: ignore[arg-type]
                step = replace(step, candidate=own)
            except (Refused, BadInput):
                pass
        steps.append(step)
    structure = exported(model, inputs, inputs).structure
    return Engine(Blueprint(replace(engine.assignment, steps=tuple(steps)), engine.constants, structure), facts)


def pooled(y: Tensor) -> Tensor:
    return F.max_pool2d(y, 3, 1, 1)


def ends_here(x: Tensor) -> Tensor:
    y = x.sigmoid()
    return pooled(y) + y.exp()


def is_read_late(x: Tensor) -> Tensor:
    """The exponential is written to the output first."""
    y = x.sigmoid()
    return pooled(y).exp() + y


def is_read_again(x: Tensor) -> Tensor:
    y = x.sigmoid()
    return pooled(pooled(y) + y.exp()) + y


def is_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.sigmoid()
    return pooled(y) + y.exp(), y


def is_broadcast(x: Tensor) -> Tensor:
    y = x[:, :1].sigmoid()
    return pooled(x) + y.exp()


def is_reduced(x: Tensor) -> Tensor:
    y = x.sigmoid()
    return pooled(pooled(y) + y.softmax(1))


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ends_here, ["exp+add"]),
        (is_read_late, []),
        (is_read_again, ["add:2"]),
        (is_returned, []),
        (is_broadcast, []),
        (is_reduced, []),
    ],
)
def test_an_output_is_written_over_what_ends_there(function: Any, expected: list[str]) -> None:
    model = Net(lambda _, x: function(x)).eval()
    engine = into(model, X)
    offsets, steps = engine._program.lifetimes.offsets, engine.assignment.steps
    over = [
        step for step in steps
        if step.operation.kind == "pointwise" and any(
            offsets.get(name, -1) == offsets.get(step.writes[0]) and dict(step.reads)[role] != step.writes[0]
            and engine.assignment.last_uses()[name] == steps.index(step) for role, name in step.reads
        )
    ]  # fmt: skip
    assert [step.name for step in over] == expected
    for _ in range(2):
        got, right = engine(X), function(X)
        assert_close(got, right, rtol=1e-5, atol=1e-6)


@dataclass
class _Needs:
    workspace_bytes: int
    writes_out: bool


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("seed", range(8))
def test_lifetimes_hold_what_is_needed(seed: int) -> None:
    """No tensor in the arena shares bytes with another while both are needed, but for one that ends where the other
    begins."""
    engine = optimize(RandomNetwork(seed), torch.randn(2, 4, 8, 8), mode=Mode.HEURISTIC)
    assigned = engine.assignment
    needs = [None if step.candidate is None else _Needs(256 * (seed % 3), True) for step in assigned.steps]
    lives = Lifetimes(assigned, needs)
    last, first = assigned.last_uses(), {n: at for at, step in enumerate(assigned.steps) for n in step.writes}
    assert lives.plan.lower_bound == lower_bound(lives.buffers) <= lives.plan.nbytes <= lives.nbytes
    there = [
        (name, at, lives.offsets[name], lives.offsets[name] + aligned(assigned.tensors[name].span_bytes))
        for name, at in first.items() if name in lives.offsets
    ]  # fmt: skip
    for name, begin, low, high in there:
        for other, at, start, end in there:
            if name != other and begin <= at < last[name]:
                assert end <= low or high <= start
