"""Runs on tensors that stay where they are: `input`, `output` and `run`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.engine.running.fixed_run import FixedRun
from convwright.settings import Mode
from engine.net import Net
from engine.random_network import RandomNetwork


def engine(model: nn.Module, *inputs: Tensor) -> Engine:
    return optimize(model.eval(), inputs, mode=Mode.HEURISTIC)


def flat(outputs: Any) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("seed", [0, 3, 7])
def test_a_run_computes_what_a_call_does_and_tensors_stay_where_they_are(seed: int) -> None:
    x = torch.randn(2, 4, 8, 8)
    made = engine(RandomNetwork(seed), x)
    given, output = made.input, made.output
    for _ in range(3):
        given.copy_(torch.randn(2, 4, 8, 8))
        expected = flat(made(given.clone()))
        made(x)  # in between
        got = made.run()
        assert made.input is given
        assert [each.data_ptr() for each in flat(got)] == [each.data_ptr() for each in flat(output)]
        assert all(map(torch.equal, flat(got), expected))
        assert all(map(torch.equal, flat(output), expected))


def test_what_a_call_on_a_gpu_returns_is_its_own() -> None:
    """There a call is a run on the fixed tensors."""
    model = Net(lambda self, x, z: (self.one(x), z, self.one(x), x * 2), one=nn.Conv2d(4, 4, 1))
    x, z = (torch.randn(2, 4, 6, 6) for _ in range(2))
    made = engine(model, x, z)
    fixed = FixedRun(made._program)
    got = fixed.of([x, z])
    assert got[1] is z
    assert all(map(torch.equal, got, made(x, z)))
    kept = [each.clone() for each in got]
    fixed.of([x + 1, z + 1])
    assert all(map(torch.equal, got, kept))


def test_outputs_of_a_call_are_others_than_those_of_a_run() -> None:
    x = torch.randn(2, 4, 8, 8)
    made = engine(RandomNetwork(2), x)
    kept = flat(made(x))
    first = [each.clone() for each in kept]
    made.input.copy_(x + 1)
    made.run()
    assert all(map(torch.equal, kept, first))


def test_several_inputs_and_nested_outputs() -> None:
    model = Net(lambda self, x, z: {"b": self.one(x) + z, "a": (z, z * 2)}, one=nn.Conv2d(4, 4, 1))
    x, z = (torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last) for _ in range(2))
    made = engine(model, x, z)
    assert [each.stride() for each in made.input] == [x.stride(), z.stride()]
    for held, given in zip(made.input, (x, z), strict=True):
        held.copy_(given)
    got = made.run()
    assert [*got] == ["b", "a"]
    torch.testing.assert_close(flat(got), flat(model(x, z)))


def test_a_clone_has_tensors_of_its_own_and_an_update_is_seen() -> None:
    model, other = (nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()).eval() for _ in range(2))
    x = torch.randn(2, 4, 6, 6)
    made = engine(model, x)
    clone = made.clone()
    assert clone.input.data_ptr() != made.input.data_ptr()
    made.update(other)
    for each, right in ((made, other), (clone, model)):
        each.input.copy_(x)
        torch.testing.assert_close(each.run(), right(x))


def test_an_output_may_be_the_next_input() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(1)) for _ in range(3)))
    x = torch.randn(2, 4, 8, 8)
    made = engine(model, x)
    with torch.no_grad():
        right = model(model(model(x)))
    made.input.copy_(x)
    torch.testing.assert_close(made(made(made.run())), right)
    again = made(made.run())
    torch.testing.assert_close(again, made(made(x)))


def test_a_run_needs_no_gradients_and_keeps_to_its_precision() -> None:
    made = engine(nn.Conv2d(4, 4, 1), torch.randn(2, 4, 6, 6))
    made.input.normal_()
    expected = made(made.input.clone())
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(made.run(), expected)
    assert not made.output.requires_grad
