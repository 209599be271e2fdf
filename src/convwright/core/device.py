"""What is true of a device, present or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from convwright.core.dtype import Arithmetic
from convwright.core.record import Record

# The first compute capability of NVIDIA's that has what not all have.
_FIRST_WITH = {Arithmetic.TF32: 80, Arithmetic.BF16_ACC32: 80}


@dataclass(frozen=True, slots=True)
class DeviceFacts(Record):
    """A device as data. None is what is not known, never 0.

    ``torch_name`` is how PyTorch names the device where it is present ("cpu", "cuda:0"), and None where it is
    elsewhere. ``clock_mhz`` is the highest that its multiprocessors, or cores, run at; ``peak_flops_per_us`` is what
    all of them do at that clock. ``properties_json`` is the property record that cuDNN plans from.
    """

    TOLD: ClassVar = ("key",)

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

    @property
    def present(self) -> bool:
        return self.torch_name is not None

    @property
    def key(self) -> str:
        """What must be equal for a measurement taken on one device to hold on another."""
        return self.name if self.threads is None else f"{self.name}, {self.threads} threads"

    def peak(self, arithmetic: Arithmetic) -> float | None:
        """Floating-point operations per microsecond of the unit that ``arithmetic`` runs on."""
        return dict(self.peak_flops_per_us).get(arithmetic.unit)

    def computes(self, arithmetic: Arithmetic) -> bool:
        """Whether a GPU has an arithmetic: where its rates are not known, by its compute capability."""
        if self.peak_flops_per_us:
            return self.peak(arithmetic) is not None
        capability = int("".join(filter(str.isdigit, self.architecture)) or 0)
        return capability >= _FIRST_WITH.get(arithmetic, 0)

    def peaks_with(self, sm_count: int, clock_mhz: int) -> tuple[tuple[Arithmetic, float], ...]:
        """What the peaks would be with so many multiprocessors at such a clock: of a slice, or of a faster card."""
        if not self.sm_count or not self.clock_mhz:
            return self.peak_flops_per_us
        share = sm_count * clock_mhz / (self.sm_count * self.clock_mhz)
        return tuple((arithmetic, peak * share) for arithmetic, peak in self.peak_flops_per_us)
