"""Send a worker's heartbeats while it works, so that nobody else takes its tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from convwright.errors import StoreError
from convwright.store.claims import Claims

# Several heartbeats fit into the time after which a worker counts as dead.
_EVERY_S = 10.0


@contextmanager
def beating(claims: Claims, worker: str) -> Iterator[None]:
    """Inside, another thread sends heartbeats for ``worker``. That does not keep a hanging process alive, since each
    candidate has a deadline."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_EVERY_S):
            with suppress(StoreError):  # finishing a task will report it
                claims.beat(worker)

    thread = threading.Thread(target=beat, name="convwright-beating", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
