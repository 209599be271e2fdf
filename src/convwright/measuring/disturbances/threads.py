"""Fix the number of PyTorch's CPU threads during a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from convwright.errors import BadInput


@contextmanager
def pinned(threads: int | None) -> Iterator[int]:
    """PyTorch's number of threads inside the block: ``threads``, or the present number for None.

    >>> with pinned(1) as count:
    ...     count, torch.get_num_threads()
    (1, 1)
    """
    if threads is not None and threads < 1:
        raise BadInput(f"`threads` must be at least 1, got {threads}")
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield before
        return
    torch.set_num_threads(threads)
    try:
        yield threads
    finally:
        torch.set_num_threads(before)
