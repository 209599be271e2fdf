"""Concatenation by writing parts where the whole lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from convwright import torch_api
from convwright.core.policy import Policy
from convwright.engine.blueprint import Blueprint
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.loaded import load
from convwright.engine.passes.listed import passed
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner
from convwright.engine.saving.plan_checks import check_assignment
from convwright.errors import BadInput
from convwright.graph.operations import Foreign, Join, Part
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from engine.random_network import RandomNetwork


def engine(model: nn.Module, *inputs: Tensor) -> Engine:
    """Planned with slices, where each step costs as much as any other."""
    captured, facts = exported(model.eval(), inputs, inputs), device_facts("cpu")
    network = passed(captured.network).network
    planner = Planner(network, facts, Policy(), mode=Mode.HEURISTIC, store=Store.open(None), sliced=True)
    costs = Costs()
    costs.step_us = 1e3
    return Engine(Blueprint(planner.assignment(costs), network.constants, captured.structure), facts)


def joins(made: Engine) -> list[type]:
    steps = [step for step in made.assignment.steps if step.name.startswith("cat")]
    return [type(step.operation) for step in steps]


class Convolutions(nn.Module):
    """A forward pass over some convolutions of four channels and more."""

    def __init__(self, forward: Callable[[nn.ModuleList, Tensor], Tensor], *inputs: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(channels, 4, 3, padding=1) for channels in inputs)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self.convs, x)


def dense_block(convs: nn.ModuleList, x: Tensor) -> Tensor:
    found = [F.relu(x)]
    for conv in convs:
        found.append(conv(torch.cat(found, 1)))
    return torch.cat(found, 1).relu()


def skip(convs: nn.ModuleList, x: Tensor) -> Tensor:
    kept = convs[0](x).relu()
    deep = F.interpolate(convs[1](F.max_pool2d(kept, 2)), scale_factor=2)
    return convs[2](torch.cat([kept, deep], 1))


def sum_in_a_slice(convs: nn.ModuleList, x: Tensor) -> Tensor:
    """What is added does not lie in the whole."""
    added = x.relu()
    return convs[1](torch.cat([convs[0](added) + added, added.sigmoid()], 1))


def twice(convs: nn.ModuleList, x: Tensor) -> Tensor:
    y = convs[0](x)
    return convs[1](torch.cat([y, x, y], 1))


def images_in_a_row(convs: nn.ModuleList, x: Tensor) -> Tensor:
    return convs[1](torch.cat([convs[0](x), x.relu()], 0)).relu()


def rows(convs: nn.ModuleList, x: Tensor) -> Tensor:
    return convs[1](torch.cat([convs[0](x), x.relu()], 2)).relu()


def check(made: Engine, model: nn.Module, x: Tensor) -> None:
    check_assignment(made.assignment, "cpu")  # what a folder says is held against the same
    with torch.no_grad():
        expected = torch_api.flatten(model(x))[0]
    for _ in range(2):
        for got, right in zip(torch_api.flatten(made(x))[0], expected, strict=True):
            assert_close(got, right, rtol=1e-4, atol=1e-5)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [(dense_block, (4, 8, 12, 16)), (images_in_a_row, (4, 4)), (rows, (4, 4))],
)
def test_nothing_is_copied_where_parts_lie_in_the_whole(
    forward: Callable[[nn.ModuleList, Tensor], Tensor], inputs: tuple[int, ...], memory: torch.memory_format
) -> None:
    model, x = Convolutions(forward, *inputs), torch.randn(2, 4, 8, 8).to(memory_format=memory)
    made = engine(model, x)
    assert set(joins(made)) == {Join}
    assert made.assignment.slices
    check(made, model, x)


def split_and_joined(convs: nn.ModuleList, x: Tensor) -> Tensor:
    """As of a C2f block."""
    found = [*convs[0](x).relu().chunk(2, 1)]
    found.append(convs[1](found[-1]))
    return convs[2](torch.cat(found, 1))


def gated(convs: nn.ModuleList, x: Tensor) -> Tensor:
    y = convs[0](x)
    return convs[1](y[:, :2] * y.narrow(1, 2, 2).sigmoid())


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("forward", "inputs", "memory"),
    [
        (split_and_joined, (4, 2, 8), torch.contiguous_format),
        (gated, (4, 2), torch.channels_last),
        (split_and_joined, (4, 2, 8), torch.channels_last),
        (gated, (4, 2), torch.contiguous_format),
    ],
)
def test_parts_are_read_where_they_lie(
    forward: Callable[[nn.ModuleList, Tensor], Tensor], inputs: tuple[int, ...], memory: torch.memory_format,
    tmp_path: Path,
) -> None:  # fmt: skip
    model, x = Convolutions(forward, *inputs), torch.randn(2, 4, 8, 8).to(memory_format=memory)
    made = engine(model, x)
    kinds = [step.operation.kind for step in made.assignment.steps]
    assert kinds.count("part") == 2
    assert not {"copy", "foreign"} & {*kinds}
    check(made, model, x)
    made.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert again.assignment.steps == made.assignment.steps
    assert torch.equal(again(x), made(x))


def test_a_part_that_does_not_lie_where_its_step_has_it_is_refused() -> None:
    plan = engine(Convolutions(gated, 4, 2), torch.randn(2, 4, 8, 8)).assignment
    first, second = (step.writes[0] for step in plan.steps if isinstance(step.operation, Part))
    elsewhere = replace(plan, slices=plan.slices | {first: plan.slices[second]})
    with pytest.raises(BadInput, match="does not lie in"):
        check_assignment(elsewhere, "cpu")
    gone = {name: place for name, place in plan.slices.items() if name in (first, second)}
    with pytest.raises(BadInput, match="has no memory of which"):
        check_assignment(replace(plan, slices=gone), "cpu")


def test_all_of_a_dense_block_lies_in_one_whole() -> None:
    model, x = Convolutions(dense_block, 4, 8, 12, 16), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    (whole,) = made.assignment.wholes
    assert made.memory_plan.lower_bound <= 2 * made.assignment.wholes[whole].nbytes


@pytest.mark.parametrize(("forward", "inputs"), [(skip, (4, 4, 8)), (twice, (4, 12)), (sum_in_a_slice, (4, 8))])
def test_parts_may_be_copied(forward: Callable[[nn.ModuleList, Tensor], Tensor], inputs: tuple[int, ...]) -> None:
    """What PyTorch's operator makes, and what comes twice."""
    model, x = Convolutions(forward, *inputs), torch.randn(2, 4, 8, 8)
    check(engine(model, x), model, x)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_the_same_in_slices(seed: int) -> None:
    model, x = RandomNetwork(seed), torch.randn(2, 4, 8, 8)
    check(engine(model, x), model, x)


def test_a_concatenation_of_what_the_model_holds_stays_pytorchs() -> None:
    held = torch.randn(2, 3, 8, 8)

    class WithConstant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", held)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x.relu(), self.held], 1).sigmoid()

    model, x = WithConstant(), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    assert joins(made) == [Foreign]
    check(made, model, x)


def test_slices_are_saved(tmp_path: Path) -> None:
    model, x = Convolutions(dense_block, 4, 8, 12, 16), torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    made.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert again.assignment.slices == made.assignment.slices
    assert torch.equal(again(x), made(x))
