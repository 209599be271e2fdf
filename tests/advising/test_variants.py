"""Changed copies of a model: they compute the same, the model itself stays, and what cannot be is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convwright.advising.suggestion import Kind
from convwright.advising.variants import Variant, variants_of
from convwright.advising.whole_model import WholeModel, time_model
from convwright.core.device import DeviceFacts
from convwright.engine.capture.example import Subject
from convwright.engine.capture.layers import convolutions_of
from convwright.measuring.hardware.machine import device_facts

X = torch.randn(2, 3, 8, 8, dtype=torch.float64)
LAST, FOLDED = "the whole model in channels_last", "batch normalisation folded into the convolution before it"


class Net(nn.Module):
    """Two normalised convolutions around which the input is carried; ``ending`` is what a test makes of the result."""

    def __init__(self, ending: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.bn_a = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.b, self.bn_b = nn.Conv2d(4, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.ending = ending
        for norm in (self.bn_a, self.bn_b):
            nn.init.uniform_(norm.weight)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
            nn.init.normal_(norm.running_mean)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn_a(self.a(x)))
        y = torch.relu(self.bn_b(self.b(y)) + x)
        return y if self.ending is None else self.ending(y)


def variants(net: nn.Module, x: Tensor = X, *, backward: bool = False) -> tuple[list[Variant], list[str]]:
    return variants_of(Subject.of(net, x), convolutions_of(net, x), backward=backward)


def timed(net: nn.Module, *, device: DeviceFacts | None = None) -> WholeModel:
    subject, layers = Subject.of(net, X), convolutions_of(net, X)
    return time_model(subject, layers, device or device_facts("cpu"), backward=False, budget_us=150_000)


def test_variants_compute_what_the_model_computes() -> None:
    net = Net()
    kept = {name: (value.clone(), value.stride()) for name, value in net.state_dict().items()}
    with torch.no_grad():
        expected = net(X)
        made, notes = variants(net)
        assert notes == []
        assert [variant.kind for variant in made] == [Kind.EXACT, Kind.INFERENCE, Kind.INFERENCE]
        for variant in made:
            torch.testing.assert_close(variant.subject(), expected)
    for name, value in net.state_dict().items():
        assert torch.equal(value, kept[name][0])
        assert value.stride() == kept[name][1]
    assert isinstance(net.bn_a, nn.BatchNorm2d)


def test_folding_leaves_no_normalisation_and_channels_last_no_other_stride() -> None:
    last, folded, both = (variant.subject.module for variant in variants(Net())[0])
    for module in (folded, both):
        assert not [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for module in (last, both):
        assert all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in (module.a, module.b))


def test_a_model_in_channels_last_is_offered_the_other_way() -> None:
    net = Net().to(memory_format=torch.channels_last)
    made, _ = variants(net, X.contiguous(memory_format=torch.channels_last))
    assert made[0].what == "the whole model in contiguous_format"
    assert made[0].subject.module.a.weight.is_contiguous()


def test_statistics_that_still_change_are_not_folded() -> None:
    assert [variant.what for variant in variants(Net().train())[0]] == [LAST]
    assert [variant.what for variant in variants(Net(), backward=True)[0]] == [LAST]


def test_a_normalisation_that_two_convolutions_share_is_not_folded() -> None:
    net = Net()
    net.b, net.bn_b = nn.Conv2d(4, 4, 1).double().eval(), net.bn_a
    net.forward = lambda x: net.bn_a(net.b(net.bn_a(net.a(x))))  # type: ignore[method-assign]
    assert [variant.what for variant in variants(net)[0]] == [LAST]


def test_what_does_not_run_in_the_other_format_is_said() -> None:
    found = timed(Net(lambda y: y.view(y.shape[0], -1)))
    assert any(note.startswith(f"Not possible here: {LAST} (view size is not compatible") for note in found.notes)
    assert not any("channels_last" in suggestion.what for suggestion in found.suggestions)


def test_what_computes_something_else_is_not_offered() -> None:
    found = timed(Net(lambda y: y * y.stride(1)))
    assert any(note.startswith(f"Not offered: {LAST}; outputs would differ") for note in found.notes)
    assert not any("channels_last" in suggestion.what for suggestion in found.suggestions)


def test_a_model_that_cannot_be_copied_is_timed_all_the_same() -> None:
    net = Net()
    net.handle = (step for step in ())  # type: ignore[assignment]  generators cannot be copied
    found = timed(net)
    assert found.device_us is not None
    assert any("copying the model failed" in note for note in found.notes)


def test_a_function_is_timed_as_it_is() -> None:
    subject = Subject.of(torch.relu, X)
    found = time_model(subject, (), device_facts("cpu"), backward=False, budget_us=100_000)
    assert found.device_us is not None
    assert found.host_us is None
    assert "is a function" in found.notes[0]


@pytest.mark.parametrize("training", [False, True])
def test_timing_a_step_changes_nothing(training: bool) -> None:
    net = Net().train(training)
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    time_model(Subject.of(net, X), convolutions_of(net, X), device_facts("cpu"), backward=training, budget_us=100_000)
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
