"""What ``torch.compile`` compiles, compiled by several processes at once before anything is timed.

Autotuning runs every kernel that may win. What is found out while several processes do so is worth nothing: each writes
what it found to a folder of its own, which nobody reads, and its compiled kernels to one that all share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from types import TracebackType
from typing import Self

from common.stages import Answer, Stage

from convwright.measuring.disturbances.background import processors

_CORES_EACH = 4


def caches(folder: Path, whose: str) -> dict[str, str]:
    """The environment of a process with findings of its own and the kernels of all."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / whose), "TRITON_CACHE_DIR": str(folder / "kernels")}


class Autotuners:
    """So many processes as the machine has cores for."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        count, cores = max(processors() // _CORES_EACH, 1), {"TORCHINDUCTOR_COMPILE_THREADS": str(_CORES_EACH)}
        self._idle: SimpleQueue[Stage] = SimpleQueue()
        self._all = [Stage("torch-compile", {**environment, **cores, **caches(folder, f"{i}")}) for i in range(count)]
        for stage in self._all:
            self._idle.put(stage)

    def compile(self, questions: Sequence[Answer], *, until_s: float) -> None:
        """Those that can be begun before ``until_s``; the others are compiled where they are timed."""

        def ask(question: Answer) -> None:
            if perf_counter() > until_s:
                return
            stage = self._idle.get()
            stage.ask(question)
            self._idle.put(stage)

        with ThreadPoolExecutor(len(self._all)) as threads:
            list(threads.map(ask, questions))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stage in self._all:
            stage.end()
