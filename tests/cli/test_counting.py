"""Which fingerprints count: those of backends on devices that are here, whatever the user's flags."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
import torch

from convwright.backends import registry
from convwright.backends.registry import backend, backends
from convwright.cli.counting import counting
from convwright.core.device import DeviceFacts
from convwright.core.plan import Backend, FingerprintsCandidates, SeveralFingerprints
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store

CPU, GPU = device_facts("cpu"), device_facts("h200")


class Plain:
    def fingerprint(self, device: DeviceFacts) -> str:
        return f"plain on {device.kind}"


class Flagged:
    """A backend whose fingerprint tells of a flag, as that of PyTorch's own call does."""

    def fingerprint(self, device: DeviceFacts) -> str:
        raise AssertionError("as it is now is not all that counts")

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        return frozenset({f"{device.kind}, on", f"{device.kind}, off"})


def test_devices_that_are_not_here_are_left_out() -> None:
    others = [f"{CPU.name}, 97 threads", f"{CPU.name} of another kind", "NVIDIA moon"]
    assert set(counting([CPU.key, *others])) == {CPU.key, f"{CPU.name}, 97 threads"}


def test_any_setting_of_a_flag_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backends", lambda kind: [Plain(), Flagged()])
    assert counting([CPU.key]) == {CPU.key: {"plain on cpu", "cpu, on", "cpu, off"}}


def found_under(member: Backend) -> Iterable[str]:
    """What findings on a CPU have as their fingerprints."""
    return member.fingerprints(CPU) if isinstance(member, FingerprintsCandidates) else (member.fingerprint(CPU),)


def test_what_was_found_under_any_of_pytorchs_flags_outlives_pruning() -> None:
    keep = counting([CPU.key])
    with torch.backends.mkldnn.flags(enabled=False):
        assert counting([CPU.key]) == keep
        without = {member.name: [*found_under(member)] for member in backends()}
    (of_torch,) = without["torch"]
    assert of_torch != backend("torch").fingerprint(CPU)
    with Store.open(None) as store:
        for name, fingerprints in without.items():
            for place, fingerprint in enumerate(fingerprints):
                store.record("ic8ih9oc8kh3", CPU.key, f"{name}/{place}", fingerprint, None, "ran out of memory")
        store.record("ic8ih9oc8kh3", CPU.key, "older", f"{of_torch} and older", None, "ran out of memory")
        assert store.prune(keep_fingerprints=keep) == 1


def test_pytorchs_own_call_tells_all_that_its_flags_can_make_of_its_fingerprint() -> None:
    torchs = backend("torch")
    assert isinstance(torchs, SeveralFingerprints)
    met: dict[str, set[str]] = {"cpu": set(), "cuda": set()}
    for enabled, benchmark, deterministic, onednn in product((False, True), repeat=4):
        with (
            torch.backends.cudnn.flags(enabled=enabled, benchmark=benchmark, deterministic=deterministic),
            torch.backends.mkldnn.flags(enabled=onednn),
        ):
            for device in (CPU, GPU):
                met[device.kind].add(torchs.fingerprint(device))
                assert torchs.fingerprint(device) in torchs.fingerprints(device)
    assert (len(met["cpu"]), len(met["cuda"])) == (2, 8)
    assert (met["cpu"], met["cuda"]) == (torchs.fingerprints(CPU), torchs.fingerprints(GPU))


def test_frozen_flags_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    of_torch: dict[str, object] = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(of_torch, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError, match="not allowed to set"):
        torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
    assert backend("torch").fingerprint(CPU) in counting([CPU.key])[CPU.key]
