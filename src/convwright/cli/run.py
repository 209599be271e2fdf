"""``convwright run``: run an engine from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.errors import BadInput
from convwright.naming import singular
from convwright.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

    from convwright.measuring.timing import Timing

# A time whose bounds are farther apart, as a ratio, is not printed.
_FARTHEST = 1.5


def run(
    folder: Annotated[Path, typer.Argument(help="The folder of an engine.", show_default=False)],
    *,
    given: Annotated[
        list[Path] | None,
        typer.Option("--input", help="A .npy file for each input; random numbers by default.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", help="The .npz file to write the outputs to, as output_0 and so on.", show_default=False
        ),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print the time of each step.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the times of the steps as a trace for Perfetto.", show_default=False),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Print the tensors in memory and their lifetimes.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the memory to a .png, .svg or .pdf file.", show_default=False)
    ] = None,
    trust_kernels: Annotated[
        bool,
        typer.Option(
            "--trust-kernels",
            help="Run the folder's compiled kernels without a check: you must trust who wrote them.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda; by default the one that the engine was planned for.", show_default=False),
    ] = None,
) -> None:
    """Run a saved engine once, and say how long a call takes.

    Its inputs come from .npy files, in the order of the model's inputs, or are random. An engine with several buckets
    runs on random inputs of its largest bucket.
    """
    settings()  # errors in the environment are raised here
    import torch

    from convwright import torch_api
    from convwright.engine.buckets.bucketed import BucketedEngine
    from convwright.engine.loaded import load
    from convwright.measuring.timer import measure
    from convwright.tensors import torch_dtype
    from convwright.wording.pictures import picture_path

    if picture is not None:
        picture_path(picture)
    if out is not None:
        _check_writable(out)
    engine = load(folder, device, trust_kernels=trust_kernels)
    one = engine.largest if isinstance(engine, BucketedEngine) else engine
    specs = [one.assignment.tensors[name] for name in one.assignment.inputs]
    if given is None:
        inputs = [torch.randn(spec.shape).to(engine.device, torch_dtype(spec.dtype)) for spec in specs]
    elif len(given) != len(specs):
        raise BadInput(singular(f"the engine takes {len(specs)} inputs, got {len(given)} files"))
    else:
        inputs = [_read(path).to(engine.device) for path in given]
    outputs = torch_api.flatten(engine(*inputs))[0]
    for place, output in enumerate(outputs):
        print(f"output {place}: {str(output.dtype).removeprefix('torch.')} {tuple(output.shape)}")
    if out is not None:
        _write(out, outputs)
    print(_time_sentence(measure(lambda: engine(*inputs), device=engine.device, budget_us=1e6)))
    report = engine.memory_report()
    if memory:
        print(f"\n{report}")
    if picture is not None:
        report.draw(picture)
    if profile or trace is not None:
        found = engine.profile(*inputs)
        if trace is not None:
            found.write_trace(trace)
        if profile:
            print(f"\n{found}")


def _time_sentence(timing: Timing) -> str:
    """The time of a call, or why it is not known."""
    us = timing.call_us
    if not timing.disturbed and (timing.unstable is None or us.high <= _FARTHEST * us.low):
        return f"a call takes {us.value:,.1f} µs ({us.low:,.1f} to {us.high:,.1f})"
    cause = ", ".join(timing.background) or "calls took very different times"
    return f"the machine is too busy for a trustworthy time ({cause}): stop other work on it, and run this again"


def _write(path: Path, outputs: Sequence[Tensor]) -> None:
    import numpy

    try:
        named: dict[str, Any] = {f"output_{at}": each.float().cpu().numpy() for at, each in enumerate(outputs)}
        numpy.savez(path, **named)
    except OSError as error:
        raise _unwritable(path, error) from error


def _check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before anything runs."""
    if path.suffix != ".npz":
        raise BadInput(f"--output takes the name of a .npz file, such as {path.stem}.npz, got {str(path)!r}")
    try:
        with TemporaryFile(dir=path.absolute().parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"--output: {str(path)!r} cannot be written: {error.strerror or error}; choose another place")


def _read(path: Path) -> Tensor:
    import numpy
    import torch

    try:
        return torch.from_numpy(numpy.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} cannot be read as a .npy file: {why}") from None
