"""The kernels that one call launches on a GPU, as PyTorch's profiler sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from convwright.errors import BadInput

Size = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch. ``grid`` counts blocks and ``block`` threads; registers are one thread's, shared memory a block's.

    None is what the profiler does not tell. ``duration_us`` is that of one run beside a profiler: an impression.
    """

    name: str
    grid: Size | None
    block: Size | None
    registers: int | None
    shared_bytes: int | None
    duration_us: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Kernel:
        sizes = {name: _size(record[name]) for name in ("grid", "block")}
        return cls(**{**record, **sizes})


def kernels_of(call: Callable[[], object], device: torch.device | str) -> tuple[Kernel, ...]:
    """The kernels that ``call`` launches on a CUDA device, in the order in which it does.

    It runs twice: what is loaded or allocated once and for all is no part of a call. None are seen where the profiler
    is not permitted to look.
    """
    where = torch.device(device)
    if where.type != "cuda":
        raise BadInput(f"kernels are what a GPU runs, and {where} is none")
    call()
    torch.cuda.synchronize(where)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize(where)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        return kernels_in(json.loads(path.read_text()))


def kernels_in(trace: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """The kernels of a trace in Chrome's format as Kineto writes it, in the order of their launches.

    >>> launch = {"grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}
    >>> kernels_in({"traceEvents": [{"cat": "kernel", "name": "k", "ts": 1, "dur": 2.5, "args": launch}]})
    (Kernel(name='k', grid=(8, 1, 1), block=(128, 1, 1), registers=32, shared_bytes=0, duration_us=2.5),)
    """
    events = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    return tuple(map(_kernel, sorted(events, key=_launch)))


def _launch(event: Mapping[str, Any]) -> tuple[int, float]:
    """A launch is numbered when it is asked for; all of one CUDA graph share a number. Streams begin when they like."""
    return event.get("args", {}).get("correlation", 0), float(event["ts"])


def _kernel(event: Mapping[str, Any]) -> Kernel:
    told = event.get("args", {})
    return Kernel(
        name=event["name"],
        grid=_size(told.get("grid")),
        block=_size(told.get("block")),
        registers=told.get("registers per thread"),
        shared_bytes=told.get("shared memory"),
        duration_us=event.get("dur"),
    )


def _size(told: Sequence[int] | None) -> Size | None:
    if told is None:
        return None
    x, y, z = told
    return x, y, z
