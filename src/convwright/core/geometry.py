"""The arithmetic of one spatial dimension of a convolution: sizes, and which elements are really touched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension: input size, filter size, stride, padding on both sides, dilation."""

    size: int
    taps: int
    stride: int
    pad: tuple[int, int]
    dilation: int

    @property
    def reach(self) -> int:
        """Input elements from the first tap to the last, both counted."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def out(self) -> int:
        """Output positions; at most 0 where the filter does not fit."""
        return (self.size + sum(self.pad) - self.reach) // self.stride + 1

    def products(self) -> int:
        """Pairs of output position and tap that meet a real input element, not padding."""
        return sum(len(self._positions(tap)) for tap in range(self.taps))

    def touched(self) -> int:
        """Input elements that are read at least once."""
        return len({position for tap in range(self.taps) for position in self._positions(tap)})

    def _positions(self, tap: int) -> range:
        """Input positions that ``tap`` reads, one per output position that does not fall into padding."""
        first = tap * self.dilation - self.pad[0]
        start = first if first >= 0 else first + -(first // self.stride) * self.stride
        stop = min(self.size, first + self.out * self.stride)
        return range(start, max(stop, start), self.stride)
