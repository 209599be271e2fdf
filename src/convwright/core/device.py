"""The facts about a device, which may be absent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any, ClassVar

from convwright import strict_json
from convwright.core.dtype import Arithmetic
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, is_whole, one_of, singular

# NVIDIA's first compute capability with each of these.
_FIRST_WITH = {Arithmetic.TF32: 80, Arithmetic.BF16_ACC32: 80}
_KINDS = ("cpu", "cuda")
_COUNTS = ("sm_count", "threads", "clock_mhz", "memory_bytes", "cache_bytes")


@dataclass(frozen=True, slots=True)
class DeviceFacts(Record):
    """A device as data. An unknown fact is None, never 0. Impossible values are refused.

    ``torch_name`` is PyTorch's name of a device in this machine ("cpu", "cuda:0"), None for any other device.
    ``clock_mhz`` is the highest clock of its multiprocessors or cores, ``peak_flops_per_us`` their rate at that clock.
    ``properties_json`` is the property record that cuDNN plans from.
    """

    _PROPERTIES: ClassVar = ("key",)

    name: str
    kind: str
    architecture: str
    torch_name: str | None = None
    sm_count: int | None = None
    threads: int | None = None
    clock_mhz: int | None = None
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    bandwidth_bytes_per_us: float | None = None
    peak_flops_per_us: tuple[tuple[Arithmetic, float], ...] = ()
    properties_json: str | None = None
    source: str = "machine"

    def __post_init__(self) -> None:
        _check_texts(self)
        for field in _COUNTS:
            _check_count(field, getattr(self, field))
        if self.bandwidth_bytes_per_us is not None:
            check_above_0("a device's `bandwidth_bytes_per_us`", self.bandwidth_bytes_per_us)
        object.__setattr__(self, "peak_flops_per_us", _peaks(self.peak_flops_per_us))
        _check_properties(self.properties_json)

    @property
    def present(self) -> bool:
        return self.torch_name is not None

    @property
    def key(self) -> str:
        """A measurement on one device holds for all devices with the same key."""
        return self.name if self.threads is None else f"{self.name}, {self.threads} threads"

    @property
    def label(self) -> str:
        """The key for people, with a singular for one."""
        return singular(self.key)

    def peak(self, arithmetic: Arithmetic) -> float | None:
        """The peak rate of the unit that ``arithmetic`` runs on, in operations per microsecond."""
        return dict(self.peak_flops_per_us).get(arithmetic.unit)

    def computes(self, arithmetic: Arithmetic) -> bool:
        """Whether the device has an arithmetic; without known rates, by a GPU's compute capability."""
        if self.peak_flops_per_us:
            return self.peak(arithmetic) is not None
        capability = int("".join(filter(str.isdigit, self.architecture)) or 0)
        return capability >= _FIRST_WITH.get(arithmetic, 0)

    def peaks_with(self, sm_count: int, clock_mhz: int) -> tuple[tuple[Arithmetic, float], ...]:
        """The peaks with this many multiprocessors at this clock, for a slice or a faster card."""
        if not self.sm_count or not self.clock_mhz:
            return self.peak_flops_per_us
        share = sm_count * clock_mhz / (self.sm_count * self.clock_mhz)
        return tuple((arithmetic, peak * share) for arithmetic, peak in self.peak_flops_per_us)


def _check_texts(device: DeviceFacts) -> None:
    for field in ("name", "architecture", "source"):
        given = getattr(device, field)
        if not isinstance(given, str) or (field == "name" and not given):
            raise BadInput(f"a device's `{field}` must be a text, got {brief(given)}")
    if device.kind not in _KINDS:
        raise BadInput(f"a device's `kind` must be one of {', '.join(_KINDS)}, got {brief(device.kind)}")
    if device.torch_name is not None and not (isinstance(device.torch_name, str) and device.torch_name):
        raise BadInput(f"a device's `torch_name` must be PyTorch's name of it, or None, got {brief(device.torch_name)}")


def _check_count(field: str, given: Any) -> None:
    if given is not None and not (is_whole(given) and given > 0):
        raise BadInput(f"a device's `{field}` must be a whole number above 0, or None, got {brief(given)}")


def _peaks(given: object) -> tuple[tuple[Arithmetic, float], ...]:
    """Pairs of arithmetic and rate; an arithmetic may be given by name."""
    name = "a device's `peak_flops_per_us`"
    pairs = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise BadInput(f"{name} must be pairs of an arithmetic and its rate, got {brief(given)}")
    for _, peak in pairs:
        check_above_0(f"each rate of {name}", peak)
    return tuple((one_of(Arithmetic, f"each arithmetic of {name}", arithmetic), peak) for arithmetic, peak in pairs)


def _check_properties(given: object) -> None:
    if given is None:
        return
    try:
        record = strict_json.loads(given) if isinstance(given, str) else None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise BadInput(f"a device's `properties_json` must be a JSON object as text, or None, got {brief(given)}")
