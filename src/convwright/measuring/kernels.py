"""List the kernels that one call launches on a GPU, by PyTorch's profiler."""

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
    """One launch. ``grid`` counts blocks, ``block`` threads; registers are per thread, shared memory per block.

    Values that the profiler does not report are None. ``duration_us`` is a single profiled run: only a rough value.
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
    """The kernels that ``call`` launches on a CUDA device, in launch order.

    It runs twice, since one-time loading and allocation are not part of a call. The result is empty if the profiler has
    no permission.
    """
    where = torch.device(device)
    if where.type != "cuda":
        raise BadInput(f"kernels can be listed only on a GPU, got {where}")
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
    """The kernels of a Kineto trace in Chrome's format, in launch order.

    >>> launch = {"grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}
    >>> kernels_in({"traceEvents": [{"cat": "kernel", "name": "k", "ts": 1, "dur": 2.5, "args": launch}]})
    (Kernel(name='k', grid=(8, 1, 1), block=(128, 1, 1), registers=32, shared_bytes=0, duration_us=2.5),)
    """
    events = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    return tuple(map(_kernel, sorted(events, key=_launch)))


def _launch(event: Mapping[str, Any]) -> tuple[int, float]:
    """The sort key: the launch's number, which all kernels of one CUDA graph share, then the start time."""
    return event.get("args", {}).get("correlation", 0), float(event["ts"])


def _kernel(event: Mapping[str, Any]) -> Kernel:
    arguments = event.get("args", {})
    return Kernel(
        name=event["name"],
        grid=_size(arguments.get("grid")),
        block=_size(arguments.get("block")),
        registers=arguments.get("registers per thread"),
        shared_bytes=arguments.get("shared memory"),
        duration_us=event.get("dur"),
    )


def _size(sizes: Sequence[int] | None) -> Size | None:
    if sizes is None:
        return None
    x, y, z = sizes
    return x, y, z
