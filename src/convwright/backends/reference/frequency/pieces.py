"""The pieces of a convolution in the frequency domain, computed one after another to save memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convwright.backends.reference.frequency.overlap import Line


@dataclass(frozen=True, slots=True)
class Piece:
    """Some images, or some rows of tiles of one image, that are transformed and multiplied together."""

    images: slice
    lines: tuple[Line, ...]


class Pieces:
    """Pieces of so many images, or of so many rows of tiles of one image; the first is the largest.

    They are created on demand, since a large problem has too many to list.
    """

    def __init__(self, batch: int, lines: Sequence[Line], *, images: int, rows: int) -> None:
        self._batch, self._images, self._rows = batch, images, rows
        self._line, self._others = lines[0], tuple(lines[1:])
        self._parts = -(-self._line.count // rows)
        self._count = -(-max(batch, 1) // images) * self._parts

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Piece:
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        image, part = place // self._parts * self._images, place % self._parts * self._rows
        images = slice(image, min(image + self._images, self._batch))
        return Piece(images, (self._line.part(part, self._rows), *self._others))

    def __iter__(self) -> Iterator[Piece]:
        return (self[index] for index in range(self._count))
