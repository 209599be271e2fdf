"""Which fingerprints count: those of backends on devices that are here, whatever the user's flags."""

from __future__ import annotations

import pytest
import torch

from convwright.core.device import DeviceFacts
from convwright.measuring.machine import device_facts
from convwright.tuning.keeping import counting as module
from convwright.tuning.keeping.counting import counting


class Flagged:
    """A backend whose fingerprint tells of a flag, as that of PyTorch's own call does on a GPU."""

    def fingerprint(self, device: DeviceFacts) -> str:
        return f"{device.kind}, benchmark {torch.backends.cudnn.benchmark}"


class Broken:
    def fingerprint(self, device: DeviceFacts) -> str:
        raise RuntimeError("no library")


def test_devices_that_are_not_here_are_left_out() -> None:
    cpu = device_facts("cpu")
    others = [f"{cpu.name}, 97 threads", f"{cpu.name} of another kind", "NVIDIA moon"]
    assert set(counting([cpu.key, *others])) == {cpu.key, f"{cpu.name}, 97 threads"}


@pytest.mark.parametrize("before", [False, True])
def test_either_setting_of_a_flag_counts_and_the_users_is_left_alone(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = device_facts("cpu")
    with torch.backends.cudnn.flags(enabled=True, benchmark=before):
        monkeypatch.setattr(module, "backends", lambda: [Flagged()])
        assert counting([cpu.key]) == {cpu.key: {"cpu, benchmark False", "cpu, benchmark True"}}
        assert torch.backends.cudnn.benchmark is before
        monkeypatch.setattr(module, "backends", lambda: [Broken()])
        with pytest.raises(RuntimeError, match="no library"):
            counting([cpu.key])
        assert torch.backends.cudnn.benchmark is before


def test_frozen_flags_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    of_torch: dict[str, object] = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(of_torch, "__allow_nonbracketed_mutation_flag", False)
    monkeypatch.setattr(module, "backends", lambda: [Flagged()])
    with pytest.raises(RuntimeError, match="not allowed to set"):
        torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
    cpu = device_facts("cpu")
    assert len(counting([cpu.key])[cpu.key]) == 2
