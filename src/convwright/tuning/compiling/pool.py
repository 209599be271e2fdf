"""The processes that compile for searches in full and for those that follow one another, and who waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Event, Thread, main_thread

from convwright.forking import in_child
from convwright.measuring.disturbances.background import processors
from convwright.tuning.compiling.compilers import Compilers

# For one search; the search itself has one of the processors. What an earlier one left to be compiled to its end, and
# what the next ones will want, have places of their own where there are more.
MOST_AT_ONCE, PLACES = max(1, min(8, processors() - 1)), max(1, min(16, processors() - 1))
_interrupted = Event()


def _renew() -> None:
    """In a child that was forked off while another thread was at it."""
    global _interrupted
    _interrupted = Event()
    shared_compilers.cache_clear()


in_child(_renew)


@cache
def shared_compilers() -> Compilers:
    return Compilers(max(PLACES, MOST_AT_ONCE), is_over=is_over)


def is_over() -> bool:
    """Whether nobody waits for what is compiled."""
    return _interrupted.is_set() or not main_thread().is_alive()


def go_on() -> None:
    """Somebody waits again."""
    _interrupted.clear()


@contextmanager
def told_of_interrupts() -> Iterator[None]:
    """Nobody waits for a compiler any more where the process is interrupted inside, or is to end."""
    go_on()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        _interrupted.set()
        raise


def begun(work: Callable[[], None], count: int) -> int:
    """How many threads could be had that do it."""
    for already in range(count):
        try:
            # Not a daemon: one that is inside of a compiler when the interpreter ends takes the process with it.
            Thread(target=work, name="convwright-ahead", daemon=False).start()
        except RuntimeError:
            return already
    return count
