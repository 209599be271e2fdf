"""What `torch.export` prints of a model that it cannot export: nothing of it is shown, since an error follows."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO, cast

# The loggers whose warnings come before an error that says the same.
_LOGGERS = ("torch.export._trace", "torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextmanager
def without_reports() -> Iterator[None]:
    """Inside, the exporter prints neither the graph so far nor warnings. With TORCH_LOGS set it prints both."""
    if os.environ.get("TORCH_LOGS") or sys.stderr is None:
        yield
        return
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_no_record)
    try:
        with redirect_stderr(cast(TextIO, _WithoutGraphs(sys.stderr))):
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_no_record)


def _no_record(record: logging.LogRecord) -> bool:
    return record.levelno < logging.WARNING  # the user asked for a finer level than warnings


class _WithoutGraphs:
    """Passes on everything but what the exporter writes while it handles an error that holds a graph. Progress bars
    and a model's own lines stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if hasattr(sys.exc_info()[1], "partial_fx_graph"):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
