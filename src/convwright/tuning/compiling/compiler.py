"""The process in which kernels are compiled: ``python -m convwright.tuning.compiling.compiler``.

Requests come pickled on standard input, one after another. The answer to each is a byte on the file descriptor that the
first argument names, so that whatever a compiler prints is no part of it. The second argument is how nice it is; more
of them name backends whose compilers it loads before it is ready. It ends when nobody asks for a while.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from contextlib import suppress

from convwright.backends.registry import backend
from convwright.core.plan import Compiles

READY, DONE = b"r", b"d"
IDLE_S = 20.0


def main() -> None:
    answers, niceness = int(sys.argv[1]), int(sys.argv[2])
    os.nice(niceness)
    for name in sys.argv[3:]:
        with suppress(Exception):
            member = backend(name)
            assert isinstance(member, Compiles)
            member.load_compiler()
    os.write(answers, READY)
    while select.select([sys.stdin.buffer], [], [], IDLE_S)[0]:
        try:
            candidate, device = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        member = backend(candidate.backend, candidate.problem.kind)
        assert isinstance(member, Compiles)
        with suppress(Exception):  # compilers have no common one; who builds the candidate will hear it
            member.compile(candidate, device)
        os.write(answers, DONE)


if __name__ == "__main__":
    main()
