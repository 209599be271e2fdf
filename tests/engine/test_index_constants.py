"""Networks that read integers and booleans which the model holds: indices and masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.engine.export.packed import packed, unpacked

X = torch.randn(2, 4, 6, 6)


class Indexed(nn.Module):
    """Reads a table by an index, as attention with relative positions does, and its input by another."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.table = nn.Parameter(torch.randn(9, 4))
        self.bias = nn.Linear(4, 4)
        self.register_buffer("place", torch.tensor([[3, 1], [8, 0]]))
        self.register_buffer("hidden", torch.tensor([True, False, True, False, False, True]))

    def forward(self, x: Tensor) -> Tensor:
        of_table = self.table[self.place.view(-1)].mean(1).view(1, 4, 1, 1)
        of_layer = self.bias(self.table)[self.place].sum((0, 1)).view(1, 4, 1, 1)
        y = self.convolution(x) * of_table + of_layer
        y = torch.where(self.hidden, y, -y)
        return y[:, self.place[0] - 1]


def engine_of(model: nn.Module) -> cw.Engine:
    return cw.optimize(model.eval(), X, mode="heuristic")


def test_outputs_are_those_of_the_model() -> None:
    model = Indexed()
    torch.testing.assert_close(engine_of(model)(X), model(X))


def test_new_weights_reach_what_an_index_takes_from_them() -> None:
    model = Indexed()
    engine = engine_of(model)
    with torch.no_grad():
        model.table.mul_(3)
        model.bias.weight.add_(1)
    engine.update(model)
    torch.testing.assert_close(engine(X), model(X))


def test_another_index_is_refused() -> None:
    model = Indexed()
    engine = engine_of(model)
    model.place[0, 0] = 2
    with pytest.raises(cw.BadInput, match="`place` has changed, and the plan depends on its numbers: plan the model"):
        engine.update(model)


def test_what_is_computed_from_weights_while_planning_must_stay() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(self.weight > 0, x, -x)

    model = Masked()
    engine = engine_of(model)
    torch.testing.assert_close(engine(X), model(X))
    engine.update(model)
    with torch.no_grad():
        model.weight.neg_()
    with pytest.raises(cw.BadInput, match="`weight` has changed"):
        engine.update(model)


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    engine = engine_of(Indexed())
    engine.save(tmp_path / "engine")
    assert torch.equal(cw.load(tmp_path / "engine")(X), engine(X))


def test_a_model_without_memory_is_planned() -> None:
    with torch.device("meta"):
        model = Indexed().eval()
    planned = cw.optimize(model, torch.empty(X.shape, device="meta"), plan_only=True, device="h200")
    assert any("index" in step.name for step in planned.assignment.steps)


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor([[1, -5, 2**40]]), torch.tensor([True, False]), torch.tensor(7, dtype=torch.int16),
     torch.empty(0, 3, dtype=torch.int32), torch.arange(12, dtype=torch.uint8).view(3, 4).t()],
)  # fmt: skip
def test_a_tensor_as_data_and_back(tensor: Tensor) -> None:
    again = unpacked(json.loads(json.dumps(packed(tensor))))
    assert again.dtype is tensor.dtype
    assert torch.equal(again, tensor)


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"dtype": "float64"}, "cannot be a tensor of float64"), ({"shape": [-1]}, "cannot be a tensor of int64"),
     ({"shape": [2**40]}, "cannot be a tensor of int64"), ({"shape": [2]}, "has 16 bytes, got 17"),
     ({"shape": [4]}, "has 32 bytes, got 24"), ({"zlib": "AAAA"}, "cannot be read"),
     ({"zlib": "%"}, "cannot be read|has 24")],
)  # fmt: skip
def test_changed_data_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(cw.BadInput, match=why):
        unpacked(packed(torch.tensor([1, 2, 3])) | changed)


def test_other_types_are_refused() -> None:
    with pytest.raises(cw.ConvwrightError, match="a constant of complex64 cannot be written"):
        packed(torch.zeros(2, dtype=torch.complex64))


class Windowed(nn.Module):
    """Makes a mask in each call, as attention in shifted windows does. It depends on sizes alone."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.convolution, self.size = nn.Conv2d(4, 4, 3, padding=1), size

    def forward(self, x: Tensor) -> Tensor:
        parts = x.new_zeros((self.size, self.size))
        for number, rows in enumerate((slice(0, -3), slice(-3, -1), slice(-1, None))):
            parts[rows, 1:] = number
        differ = parts.unsqueeze(0) - parts.unsqueeze(1)
        mask = differ.masked_fill(differ != 0, -100.0)[0, :6, :6]
        return self.convolution(x) + mask


def test_a_mask_that_depends_on_sizes_alone_is_computed_once() -> None:
    model = Windowed()
    engine = engine_of(model)
    torch.testing.assert_close(engine(X), model(X))
    assert [type(step.operation).__name__ for step in engine.assignment.steps] == ["ConvProblem", "PointwiseProblem"]
    with torch.no_grad():
        model.convolution.weight.mul_(2)
    engine.update(model)
    torch.testing.assert_close(engine(X), model(X))


def test_an_engine_with_such_a_mask_is_saved_and_takes_new_weights(tmp_path: Path) -> None:
    model = Windowed()
    engine_of(model).save(tmp_path / "engine")
    loaded = cw.load(tmp_path / "engine")
    torch.testing.assert_close(loaded(X), model(X))
    with torch.no_grad():
        model.convolution.weight.mul_(2)
    loaded.update(model)
    torch.testing.assert_close(loaded(X), model(X))


def test_a_large_tensor_of_zeros_is_no_constant() -> None:
    class Padded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x.new_zeros((1 << 15, 4, 6, 6))[:1]

    model = Padded()
    engine = engine_of(model)
    torch.testing.assert_close(engine(X), model(X))
    assert sum(tensor.numel() for tensor in engine.constants.values()) < 1000


def test_such_a_model_without_memory_is_planned() -> None:
    with torch.device("meta"):
        model = Windowed().eval()
    planned = cw.optimize(model, torch.empty(X.shape, device="meta"), plan_only=True, device="h200")
    assert len(planned.assignment.steps) == 2
