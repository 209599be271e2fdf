"""The task of a cluster worker: build the engine of a job, and run batches."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from convwright.engine.engine import Engine

# On a GPU this many batches start between two looks at the clock, each of which makes it wait.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Task:
    """Batches of one job. ``model`` is pickled: a module, an example of its input, and a precision or None. It runs on
    the worker's GPU if there is one, else on the CPU. A stream has a ``rate_per_s`` and lasts ``seconds``. Any other
    job ends after all ``images``, or after this time."""

    key: str
    model: bytes
    batch: int
    on_cpu: bool
    seconds: float
    images: int | None = None
    rate_per_s: float | None = None


class Done(NamedTuple):
    """The number of batches run, their total time, and the time to build the engine, possibly for an earlier task."""

    batches: int
    run_s: float
    built_s: float


# Engines by the digest of their model, their batch and whether they run on the CPU, and the time to build each.
_engines: dict[tuple[str, int, bool], tuple[Engine, float]] = {}


def work(task: Task) -> Done:
    """Run a task. Its engine is kept for later tasks. A one-off job has the device to itself."""
    name = sha256(task.model).hexdigest(), task.batch, task.on_cpu
    if name not in _engines:
        if task.rate_per_s is None:
            _engines.clear()
        begun = perf_counter()
        _engines[name] = _built(task), perf_counter() - begun
    engine, built_s = _engines[name]
    _finish(engine)
    batches, run_s = _all(engine, task) if task.rate_per_s is None else _stream(engine, task, task.rate_per_s)
    return Done(batches, run_s, built_s)


def _built(task: Task) -> Engine:
    import torch

    from convwright import torch_api
    from convwright.engine.export.inputs import inputs_of
    from convwright.engine.optimize import optimize
    from convwright.engine.predict import with_batch

    module, example, precision = pickle.loads(task.model)
    device = "cpu" if task.on_cpu or not torch.cuda.is_available() else "cuda"
    tensors, nesting = torch_api.flatten(with_batch(inputs_of(example), task.batch))
    there = [torch.zeros_like(each, device=device) for each in tensors]
    inputs = tuple(torch_api.unflatten(there, nesting))
    engine = optimize(module.to(device), inputs, precision=precision)
    engine.run()
    return engine


def _all(engine: Engine, task: Task) -> tuple[int, float]:
    wanted, done, begun = -(-(task.images or 0) // task.batch), 0, perf_counter()
    at_once = _AT_ONCE if engine.device.type == "cuda" else 1
    while done < wanted and perf_counter() - begun < task.seconds:
        for _ in range(min(at_once, wanted - done)):
            engine.run()
            done += 1
        _finish(engine)
    return done, perf_counter() - begun


def _stream(engine: Engine, task: Task, rate_per_s: float) -> tuple[int, float]:
    done, busy_s, begun, every_s = 0, 0.0, perf_counter(), task.batch / rate_per_s
    while max(done * every_s, perf_counter() - begun) < task.seconds:
        sleep(max(0.0, begun + done * every_s - perf_counter()))
        started = perf_counter()
        engine.run()
        _finish(engine)
        done, busy_s = done + 1, busy_s + perf_counter() - started
    return done, busy_s


def _finish(engine: Engine) -> None:
    import torch

    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)
