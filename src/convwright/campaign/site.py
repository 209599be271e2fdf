"""The devices of a campaign: one CPU, or GPUs of this machine, each separately."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from convwright.core.device import DeviceFacts
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import whole_number

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Site:
    """One device. ``identity`` is the same in every process and container that uses it. A process with ``environment``
    sees only this GPU and calls it ``device``. ``cores`` are the processors for it, None for all.
    """

    facts: DeviceFacts
    identity: str
    device: str
    environment: Mapping[str, str]
    cores: tuple[int, ...] | None = None

    @property
    def threads(self) -> int | None:
        return self.facts.threads if self.facts.kind == "cpu" else None


def sites(device: str, gpus: str | Sequence[int] = "all") -> list[Site]:
    """The CPU, or the named GPUs: "all", or their numbers in PyTorch here."""
    if device == "cpu":
        if gpus != "all":
            raise BadInput(f"`gpus` are numbers of GPUs, and the device is the CPU: leave out gpus={gpus!r}")
        return [Site(device_facts("cpu"), f"cpu of {platform.node()}", "cpu", {_VISIBLE: ""})]
    if device.partition(":")[0] != "cuda":
        raise BadInput(f"a campaign measures on cpu or cuda, which must be in this machine, got device {device!r}")
    device_facts(device)  # raises one sentence if there is none
    numbers = _numbers(device, gpus)
    names, cores = _visible(), _shares_of_cores(len(numbers))
    return [
        Site(device_facts(f"cuda:{number}"), _uuid(number), "cuda:0", {_VISIBLE: names[number]}, share)
        for number, share in zip(numbers, cores, strict=True)
    ]


def _numbers(device: str, gpus: str | Sequence[int]) -> list[int]:
    there = torch.cuda.device_count()
    if ":" in device:
        return [whole_number("the number of a GPU", device.partition(":")[2])]
    if gpus == "all":
        return list(range(there))
    numbers = [whole_number("each of `gpus`", str(number)) for number in _words(gpus)]
    if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= there:
        raise BadInput(f"`gpus` must be 'all' or different numbers from 0 to {there - 1}, got {gpus!r}")
    return numbers


def _words(gpus: str | Sequence[int]) -> Sequence[object]:
    return gpus.split(",") if isinstance(gpus, str) else gpus


def _visible() -> list[str]:
    """CUDA's names of the GPUs that PyTorch numbers 0, 1, …"""
    given = os.environ.get(_VISIBLE)
    return given.split(",") if given else [str(number) for number in range(torch.cuda.device_count())]


def _uuid(number: int) -> str:
    return f"GPU-{torch.cuda.get_device_properties(number).uuid}"


def _shares_of_cores(count: int) -> list[tuple[int, ...] | None]:
    """The processors, divided evenly: compilers for one GPU must not slow down measurements on another."""
    if count == 1 or not hasattr(os, "sched_getaffinity"):
        return [None] * count
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // count
    return [tuple(cores[place * each : (place + 1) * each]) or None for place in range(count)]
