"""Whole models for benchmarks: a copy goes to PyTorch's own convolutions whatever is enabled, and computes the same."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Any

import enable_models
import pytest
import torch
from common.kept import kept
from common.networks import SegmentingUNet, UNet, Video, WaveNet
from common.settled import settle
from torch import Tensor, nn
from torch.nn import functional as F

SMALL = [
    (UNet(8), (3, 16, 24)),
    (WaveNet(4, 3), (1, 40)),
    (Video(4), (3, 4, 16, 16)),
    (SegmentingUNet((4, 8)), (3, 8, 8)),
]
LAYERS = [
    (nn.Conv1d(2, 4, 3, padding=1), 1), (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), 2),
    (nn.Conv3d(2, 4, 3, groups=2), 3), (nn.ConvTranspose1d(2, 4, 3), 1), (nn.ConvTranspose2d(2, 4, 3, stride=2), 2),
    (nn.ConvTranspose3d(2, 4, 3), 3),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "dims"), LAYERS, ids=lambda each: type(each).__name__)
def test_a_kept_layer_calls_what_nobody_replaces(layer: Any, dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, copied = torch.randn(2, 2, *[6] * dims), kept(layer)
    expected, name = layer(x), f"conv{'_transpose' * isinstance(layer, nn.modules.conv._ConvTransposeNd)}{dims}d"

    def replaced(*_: object) -> Tensor:
        raise AssertionError(name)

    monkeypatch.setattr(F, name, replaced)
    assert torch.equal(copied(x), expected)
    with pytest.raises(AssertionError, match=name):
        layer(x)
    assert type(layer) is not type(copied)


@pytest.mark.parametrize(("network", "shape"), SMALL, ids=lambda each: type(each).__name__)
def test_a_network_and_its_copy_compute_the_same(network: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(2, *shape)
    y, same = network.eval()(x), kept(network).eval()(x)
    assert y.isfinite().all()
    assert torch.equal(y, same)


@pytest.mark.parametrize("training", [False, True])
def test_a_row_has_both_sides(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enable_models, "NETWORKS", {"small": (lambda: WaveNet(4, 2), (1, 40))})
    monkeypatch.setattr(enable_models, "settle", partial(settle, calls=4))
    mode = "training" if training else "inference"
    asked = {"models": ["small"], "device": "cpu", "batch": 2, "cases": ["fp32"], "modes": [mode], "budget_s": 0.2}
    with torch.set_grad_enabled(False):
        (row,) = enable_models.rows(Namespace(**asked, errors=True, hurried=False))
    assert row["model"] == "small"
    assert max(row["relative_l2"].values()) < 1e-5
    assert row["ours_us"] > 0 < row["torch_us"]
    assert row["peak_bytes"] is None
