"""Clusters of machines, as Dask has them."""

from __future__ import annotations

from typing import Any

from convwright.errors import BadInput, first_line


def connect(address: str, timeout_s: float) -> Any:
    """A client of the scheduler at an address, such as tcp://host:8786; an ``OSError`` where none answers in time."""
    try:
        from distributed import Client
    except ImportError as error:
        raise BadInput(
            "a cluster is reached by Dask, which is not installed here: pip install 'convwright[cluster]'"
        ) from error
    return Client(address, timeout=timeout_s, set_as_default=False)


def unreachable(address: str, error: OSError) -> BadInput:
    """What to raise where ``connect`` found no scheduler."""
    return BadInput(f"no Dask scheduler answers at {address}: {first_line(error)}")
