"""A picture of grouped bars, as SVG that needs nothing to be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from xml.sax.saxutils import escape

_RIGHT, _TOP, _BAR, _GAP, _WIDTH = 70, 78, 13, 12, 850
_MOST_TICKS = 10


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one another: their lengths, and what is written beside each."""

    name: str
    bars: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart. ``sides`` are the names and colours of a group's bars. Lengths are ratios, and the axis counts them."""

    title: str
    sides: Sequence[tuple[str, str]]
    groups: Sequence[Group]
    left: int = 225

    def svg(self) -> str:
        height = self._top_of(len(self.groups)) + 34
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
                'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#212121">',
                f"<title>{escape(self.title)}</title>",
                f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
                f'<text x="{_WIDTH / 2:.0f}" y="26" font-size="16" font-weight="bold" text-anchor="middle">'
                f"{escape(self.title)}</text>",
                *self._legend(),
                *chain.from_iterable(self._group(group, self._top_of(at)) for at, group in enumerate(self.groups)),
                *self._axis(height - 30),
                "</svg>\n",
            ]
        )

    @property
    def _longest(self) -> float:
        return max(length for group in self.groups for length, _ in group.bars)

    @property
    def _scale(self) -> float:
        return (_WIDTH - self.left - _RIGHT) / self._longest

    def _top_of(self, number: int) -> int:
        return _TOP + number * (len(self.sides) * _BAR + _GAP)

    def _legend(self) -> Iterator[str]:
        for number, (name, colour) in enumerate(self.sides):
            x = self.left + 160 * number
            yield f'<rect x="{x}" y="42" width="14" height="14" fill="{colour}"/>'
            yield f'<text x="{x + 20}" y="54">{escape(name)}</text>'

    def _group(self, group: Group, top: int) -> Iterator[str]:
        middle = top + len(self.sides) / 2 * _BAR + 4
        yield f'<text x="{self.left - 10}" y="{middle:.1f}" text-anchor="end">{escape(group.name)}</text>'
        for number, ((_, colour), (length, beside)) in enumerate(zip(self.sides, group.bars, strict=True)):
            y, width = top + number * _BAR, self._scale * length
            yield f'<rect x="{self.left}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" fill="{colour}"/>'
            yield f'<text x="{self.left + width + 5:.1f}" y="{y + 10}" font-size="11">{escape(beside)}</text>'

    def _axis(self, y: int) -> Iterator[str]:
        yield f'<line x1="{self.left}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#212121"/>'
        for ratio in range(0, int(self._longest) + 1, ceil(self._longest / _MOST_TICKS)):
            x = self.left + ratio * self._scale
            yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="#212121"/>'
            yield f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{ratio}x</text>'
