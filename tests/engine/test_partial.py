"""Models that cannot be exported as a whole: their largest parts are engines."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.engine.partial import PartialEngine
from convwright.errors import Refused
from convwright.settings import Mode

X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))


class Branching(nn.Module):
    """Which layer runs depends on the numbers that it is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y if float(y.sum()) > 1e9 else y.relu()


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.branching, self.head = Branching(), nn.Linear(8, 3)

    def forward(self, x: Tensor, *, twice: bool = False) -> Tensor:
        y = self.branching(self.stem(x)).mean((2, 3))
        y = self.head(y)
        return y * 2 if twice else y


def made() -> tuple[nn.Module, PartialEngine]:
    model = Whole().eval()
    engine = optimize(model, X, mode=Mode.HEURISTIC, partial=True)
    assert isinstance(engine, PartialEngine)
    return model, engine


@pytest.fixture(scope="module")
def shared() -> tuple[nn.Module, PartialEngine]:
    return made()


def test_the_largest_parts_are_engines(shared: tuple[nn.Module, PartialEngine]) -> None:
    model, engine = shared
    assert list(engine.engines) == ["stem", "branching.conv"]
    with torch.no_grad():
        assert_close(engine(X), model(X))
        assert_close(engine(X, twice=True), model(X, twice=True))
    assert "stem:" in engine.explain()
    assert "branching.conv:" in engine.explain()


def test_other_sizes_are_computed_by_the_model_itself(shared: tuple[nn.Module, PartialEngine]) -> None:
    model, engine = shared
    x = torch.randn(3, 4, 9, 7)
    with torch.no_grad():
        assert_close(engine(x), model(x))


def test_the_model_stays_as_it_is_and_new_weights_are_taken() -> None:
    model, engine = made()
    assert type(model.stem) is nn.Sequential
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    engine.update(model)
    with torch.no_grad():
        assert_close(engine(X), model(X))


def test_a_model_that_can_be_exported_is_one_engine() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    assert isinstance(optimize(model, X, mode=Mode.HEURISTIC, partial=True), Engine)


def test_why_nothing_can_be_planned_is_told() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    with pytest.raises(Refused, match="the model cannot be exported as a whole"):
        optimize(Nothing().eval(), X, mode=Mode.HEURISTIC)
    with pytest.raises(Refused, match="no part of the model can be planned either"):
        optimize(Nothing().eval(), X, mode=Mode.HEURISTIC, partial=True)


class Asking(nn.Module):
    """Reads attributes, items and weights of its parts, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.tail = Branching(), nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.channels = self.tail.channels = 8
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.tail(self.body(x)) * len(self.tail) + self.tail[0].weight.mean()
        return self.tail(y.view(-1, self.tail.channels, 6, 6))


def test_parts_keep_their_attributes_items_and_weights_and_the_model_its_counts() -> None:
    torch.manual_seed(0)
    model, x = Asking().eval(), torch.randn(2, 8, 6, 6)
    engine = optimize(model, x, mode=Mode.HEURISTIC, partial=True)
    assert isinstance(engine, PartialEngine)
    assert list(engine.engines) == ["body.conv", "tail"]
    assert model.calls == 0
    with torch.no_grad():
        assert_close(engine(x), model(x))


def test_a_hook_of_a_part_works_once() -> None:
    model = Whole().eval()
    model.stem.register_forward_hook(lambda module, args, y: y * 2)
    engine = optimize(model, X, mode=Mode.HEURISTIC, partial=True)
    assert isinstance(engine, PartialEngine)
    for x in (X, torch.randn(1, 4, 9, 9)):  # by the engine, and by the part itself
        with torch.no_grad():
            assert_close(engine(x), model(x))
