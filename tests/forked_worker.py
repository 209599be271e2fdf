"""Processes that measure, forked off from the one that tests: PyTorch is not loaded again for each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import IO, Any

import pytest
import torch

from convwright.tuning import workers
from forked import Forked


@contextmanager
def forked_workers(serve: Callable[[], None]) -> Iterator[None]:
    """Inside, each worker that is started is a fork of this process and runs ``serve``."""
    constants = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
    stand_in = SimpleNamespace(Popen=partial(_Worker, serve), **constants)
    threads = torch.get_num_threads()
    # PyTorch's own convolution hangs in a child whose parent has computed with several threads.
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workers, "subprocess", stand_in)
            yield
    finally:
        torch.set_num_threads(threads)


class _Worker(Forked):
    def __init__(
        self,
        serve: Callable[[], None],
        command: Sequence[str],
        *,
        stderr: IO[bytes],
        pass_fds: Sequence[int],
        env: Mapping[str, str],
        **same: Any,  # as in every forked child
    ) -> None:
        def work() -> None:
            os.environ.clear()
            os.environ.update(env)
            # Parts of PyTorch's own tests, which may have run in this process, forbid to set its flags.
            torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
            serve()

        its_reading, writing = os.pipe()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        super().__init__(work, {0: its_reading, 1: nowhere, 2: stderr.fileno()}, pass_fds)
        os.close(its_reading)
        os.close(nowhere)
        self.stdin = os.fdopen(writing, "wb", buffering=0)
