"""A worker is heard of while it works: its tasks are nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from convwright.errors import StoreError
from convwright.store.claims import Claims

# Several of these fit into the time after which a worker is taken for dead.
_EVERY_S = 10.0


@contextmanager
def beating(claims: Claims, worker: str) -> Iterator[None]:
    """Inside, another thread says again and again that ``worker`` lives. A process that hangs is not kept alive by
    that: each candidate has a deadline."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_EVERY_S):
            with suppress(StoreError):  # who finishes a task will hear of it
                claims.beat(worker)

    thread = threading.Thread(target=beat, name="convwright-beating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
