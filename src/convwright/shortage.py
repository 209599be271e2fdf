"""Memory that cannot be had: how that shows in what libraries raise, and the error that says what it was for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from convwright.core.finding import OUT_OF_MEMORY, says_out_of_memory
from convwright.errors import BackendError, first_line

# What is raised where memory is short: PyTorch's own error is a RuntimeError, and so are those of its CPU allocator, of
# CUDA's driver and of the libraries.
SHORTAGES = (RuntimeError, MemoryError)


class OutOfMemory(BackendError, torch.OutOfMemoryError):
    """There is no memory for what was asked for; the sentence says for what, and how many bytes that is. It is one of
    PyTorch's ``OutOfMemoryError`` as well."""


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that there is no memory.

    >>> is_shortage(RuntimeError("CUDA error: out of memory")), is_shortage(RuntimeError("out of registers"))
    (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and says_out_of_memory(str(error))


def shortage(error: BaseException) -> str:
    """An error that says that there is no memory, in a few words.

    >>> shortage(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …"))
    'out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.'
    """
    if isinstance(error, OutOfMemory):
        return str(error)
    return f"{OUT_OF_MEMORY}: {first_line(error).partition(' GPU ')[0]}"


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Where what is done inside runs out of memory, that is said to have been for ``what``."""
    try:
        yield
    except SHORTAGES as error:
        if isinstance(error, OutOfMemory) or not is_shortage(error):
            raise
        raise OutOfMemory(f"{OUT_OF_MEMORY} for {what}") from error
