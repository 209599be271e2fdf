"""Clusters of machines, as Dask has them."""

from __future__ import annotations

import re
from typing import Any

from convwright.errors import BadInput, first_line

# Distributed waits for its whole timeout before it says what is wrong with an address.
_ADDRESS = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^/\s]+:\d+|inproc://\S+")


def check_address(address: str) -> None:
    """Refuse what cannot be the address of a scheduler.

    >>> check_address("tcp://host:8786")
    """
    if not (isinstance(address, str) and _ADDRESS.fullmatch(address)):
        raise BadInput(
            f"a cluster is given by the address of its Dask scheduler with a port, tcp://host:8786, got {address!r}"
        )


def connect(address: str, timeout_s: float) -> Any:
    """A client of the scheduler at an address, such as tcp://host:8786; an ``OSError`` where none answers in time."""
    check_address(address)
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
