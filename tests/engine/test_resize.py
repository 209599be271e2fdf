"""Other sizes of images in networks: PyTorch's operators become problems, which compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.tensor_spec import Layout
from convwright.engine.export.exported import exported
from convwright.engine.loaded import load
from convwright.engine.network import Network
from convwright.engine.reference import reference
from convwright.graph.layouts import dense, laid
from convwright.graph.operations import Foreign
from engine.net import Net


def network(model: nn.Module, *inputs: Tensor) -> Network:
    return exported(model.eval(), inputs, inputs).network


def resizes(made: Network) -> list[str]:
    return [node.operation.key for node in made.graph.nodes if isinstance(node.operation, ResizeProblem)]


def foreign(made: Network) -> list[str]:
    return [node.operation.target for node in made.graph.nodes if isinstance(node.operation, Foreign)]


class UNet(nn.Module):
    """Two levels, of which the lower one is brought back by a linear mean, and a head by nearest pixels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up, self.third = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(24, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.first(x).relu()
        deep = self.second(kept).relu()
        joined = self.third(torch.cat([kept, self.up(deep)], 1)).relu()
        masks = self.head(F.interpolate(joined, scale_factor=1.7))
        return masks, F.interpolate(joined, size=(9, 30), mode="bilinear", align_corners=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["heuristic", None])
def test_a_u_net_computes_what_the_model_computes(mode: str | None, tmp_path: Path) -> None:
    model, x = UNet().eval(), torch.randn(2, 3, 16, 20)
    made = network(model, x)
    assert resizes(made) == [
        "resize linear mb2ic16ih8iw10 oh16ow20 dt:fp32 tag:nchw",
        "resize nearest mb2ic8ih16iw20 oh27ow34 dt:fp32 tag:nchw scale:h=1.7",
        "resize linear mb2ic8ih16iw20 oh9ow30 dt:fp32 tag:nchw align:corners",
    ]
    assert foreign(made) == []
    engine = cw.optimize(model, x) if mode is None else cw.optimize(model, x, mode=mode)
    assert not [step for step in engine.assignment.steps if "upsample" in str(step.operation.key)]
    with torch.no_grad():
        right = model(x)
    for mine, exact, theirs in zip(engine(x), reference(made, [x]), right, strict=True):
        assert_close(mine, theirs)
        assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)
    engine.save(tmp_path / "engine")
    for mine, theirs in zip(load(tmp_path / "engine", "cpu")(x), engine(x), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.first_cases(2)
@pytest.mark.parametrize(
    ("shape", "given", "key"),
    [
        ((2, 3, 7), {"size": 11}, "resize nearest mb2ic3iw7 ow11 dt:fp32 tag:nchw"),
        ((2, 3, 7), {"size": 11, "mode": "linear"}, "resize linear mb2ic3iw7 ow11 dt:fp32 tag:nchw"),
        ((2, 3, 7, 6), {"scale_factor": (2, 0.5)}, "resize nearest mb2ic3ih7iw6 oh14ow3 dt:fp32 tag:nchw"),
        (
            (2, 3, 7, 6),
            {"scale_factor": 1.6, "mode": "bilinear", "recompute_scale_factor": True},
            "resize linear mb2ic3ih7iw6 oh11ow9 dt:fp32 tag:nchw",
        ),
        (
            (2, 3, 3, 4, 5),
            {"scale_factor": (2, 1.3, 1.5), "mode": "trilinear"},
            "resize linear mb2ic3id3ih4iw5 od6oh5ow7 dt:fp32 tag:nchw scale:h=1.3,w=1.5",
        ),
        ((2, 3, 3, 4, 5), {"size": 4}, "resize nearest mb2ic3id3ih4iw5 od4oh4ow4 dt:fp32 tag:nchw"),
    ],
)
def test_each_operator_becomes_a_problem(shape: tuple[int, ...], given: dict[str, Any], key: str) -> None:
    model, x = Net(lambda self, x: F.interpolate(x * 2, **given)), torch.randn(shape)
    made = network(model, x)
    assert resizes(made) == [key]
    assert foreign(made) == []
    assert_close(cw.optimize(model, x, mode="heuristic")(x), model(x))
    assert_close(reference(made, [x])[0], model(x).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments", "key"),
    [
        ("nearest1d", ([9], 1.9), "resize nearest mb2ic3iw5 ow9 dt:fp32 tag:nchw scale:w=1.9"),
        ("nearest2d", ([9, 8], None, 1.7), "resize nearest mb2ic3ih5iw5 oh9ow8 dt:fp32 tag:nchw scale:w=1.7"),
        ("nearest3d", ([9, 9, 9],), "resize nearest mb2ic3id5ih5iw5 od9oh9ow9 dt:fp32 tag:nchw"),
        ("linear1d", ([9], False, 1.9), "resize linear mb2ic3iw5 ow9 dt:fp32 tag:nchw scale:w=1.9"),
        (
            "trilinear3d",
            ([9, 9, 9], True, None, 1.9),
            "resize linear mb2ic3id5ih5iw5 od9oh9ow9 dt:fp32 tag:nchw align:corners",
        ),
    ],
)
def test_the_overload_with_one_scale_after_the_other_becomes_a_problem(
    name: str, arguments: tuple[Any, ...], key: str
) -> None:
    operator = getattr(torch.ops.aten, f"upsample_{name}").default
    model, x = Net(lambda self, x: operator(x, *arguments)), torch.randn(2, 3, *[5] * int(name[-2]))
    made = network(model, x)
    assert resizes(made) == [key]
    assert_close(reference(made, [x])[0], model(x).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(
    "given",
    [
        {"scale_factor": 1.05},  # where sizes stay PyTorch's kernels do not agree on what a scale means
        {"size": 11, "mode": "bilinear", "antialias": True},
        {"size": 11, "mode": "bicubic"},
        {"size": 11, "mode": "nearest-exact"},
    ],
)
def test_what_is_no_problem_stays_pytorchs(given: dict[str, Any]) -> None:
    model, x = Net(lambda self, x: F.interpolate(x, **given)), torch.randn(1, 3, 10, 10)
    made = network(model, x)
    assert resizes(made) == []
    assert len(foreign(made)) == 1
    assert torch.equal(cw.optimize(model, x, mode="heuristic")(x), model(x))


def test_its_operands_lie_as_they_are_told() -> None:
    problem = ResizeProblem.parse("resize linear mb2ic3ih5 oh9")
    last = {role: dense(spec, Layout.NHWC) for role, spec in problem.operands.items()}
    assert laid(problem, last) == ResizeProblem.parse("resize linear mb2ic3ih5 oh9 tag:nhwc")
