"""Work that is done in a forked child."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import time
from collections.abc import Callable

PATIENCE_S = 20.0


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` gives in a forked child, or how the child ended."""
    reading, writing = os.pipe()
    gc.collect()  # what earlier tests have left behind is none of the child's
    child = os.fork()
    if child == 0:
        said = ""
        faulthandler.register(signal.SIGUSR1, file=writing)
        try:
            said = f"{work()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode()[:4000])
            os._exit(0)
    os.close(writing)
    until = time.monotonic() + PATIENCE_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGUSR1)
            time.sleep(0.5)  # for it to say where it is
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.set_blocking(reading, False)  # a child of the child may hold the other end
            with os.fdopen(reading) as said_there:
                return f"still there after {PATIENCE_S} s, at\n{said_there.read()}"
        time.sleep(0.01)
    with os.fdopen(reading) as said_there:
        return said_there.read() or f"ended with status {ended[1]}"
