"""The arithmetic of one spatial dimension of a convolution: sizes, and which elements are really touched."""

from __future__ import annotations

from dataclasses import dataclass

# With more taps than any filter has, padding is counted like the input: to look at each tap would take minutes.
_MOST_TAPS = 1 << 20


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
        if self.taps > _MOST_TAPS:
            return self.taps * max(self.out, 0)
        return sum(len(self._positions(tap)) for tap in range(self.taps))

    def touched(self) -> int:
        """Input elements that are read at least once."""
        # Positions of one remainder by the stride follow each other, and from tap to tap no end of them comes earlier.
        if self.taps > _MOST_TAPS:
            return self.size
        counted: dict[int, int] = {}
        total = 0
        for positions in filter(None, map(self._positions, range(self.taps))):
            first, remainder = divmod(positions.start, self.stride)
            end, known = first + len(positions), counted.get(remainder, 0)
            total += max(0, end - max(first, known))
            counted[remainder] = max(end, known)
        return total

    def taps_met(self) -> int:
        """Taps that meet the input at least once, not padding alone."""
        return self.taps if self.taps > _MOST_TAPS else sum(map(bool, map(self._positions, range(self.taps))))

    def outputs_met(self) -> int:
        """Output positions of which at least one tap meets the input."""
        if self.taps > _MOST_TAPS:
            return max(self.out, 0)
        total = known = 0
        for tap in reversed(range(self.taps)):  # from the last to the first, no range of positions begins earlier
            if positions := self._positions(tap):
                first = (positions.start + self.pad[0] - tap * self.dilation) // self.stride
                end = first + len(positions)
                total += max(0, end - max(first, known))
                known = max(end, known)
        return total

    def _positions(self, tap: int) -> range:
        """Input positions that ``tap`` reads, one per output position that does not fall into padding."""
        first = tap * self.dilation - self.pad[0]
        start = first if first >= 0 else first + -(first // self.stride) * self.stride
        stop = min(self.size, first + self.out * self.stride)
        return range(start, max(stop, start), self.stride)
