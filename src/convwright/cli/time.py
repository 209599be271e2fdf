"""``convwright time``: what a call takes, or which of several is the fastest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.interrupt import stoppable
from convwright.cli.output_form import TolerateLoad
from convwright.errors import BadInput, in_words
from convwright.report.words.amounts import microseconds, percent_text

if TYPE_CHECKING:
    from convwright.cli.targets import Targets
    from convwright.core.finding import Interval
    from convwright.engine.capture.example import Subject
    from convwright.measuring.compare import Verdict
    from convwright.measuring.timing import Timing

_REDRAW_EVERY_S = 0.2
_OVERHEAD = "overhead µs"
_WHAT_OVERHEAD_IS = (
    "what timing itself costs once in each sample, and no part of a call's time; – where it may be nothing"
)


def time_(
    targets: Annotated[
        list[str], typer.Argument(help="module:function or path/to/file.py:function, one or more.", show_default=False)
    ],
    *,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1. By default the device of the tensor that the call returns.")
    ] = None,
    budget: Annotated[
        float,
        typer.Option(help="The most seconds to spend on timing all targets; on a CPU each is called at least 9 times."),
    ] = 1.0,
    precision: Annotated[
        float, typer.Option(help="Width of the 95 % interval at which to stop, in percent: 1 is ± 0.5 %.")
    ] = 1.0,
    cache: Annotated[str, typer.Option(help="State of the cache: hot (as the previous call left it) or cold.")] = "hot",
    threads: Annotated[int | None, typer.Option(help="Number of PyTorch's CPU threads during the measurement.")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Measure the peak of a call's memory too.")] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Measure energy too, which takes more than 6 s for each target.")
    ] = False,
    tolerate_load: TolerateLoad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time a call, with an interval, and compare other calls with it.

    A function that returns a model and an example, as for `convwright advise`, is called once. Then the model is timed
    on that example, without gradients.

    A file imports from its own folder, so that two versions of a project can be compared.
    """
    from convwright.cli.targets import Targets, running
    from convwright.naming import check_above_0

    if len(set(targets)) < len(targets):
        raise BadInput(f"each target can be given once, got {' '.join(targets)}")
    if cache not in ("hot", "cold"):
        raise BadInput(
            f"--cache must be hot or cold, got {cache!r}; another state needs to know which tensors are warm: "
            "use convwright.measure(…, cache='network', warm=[x])"
        )
    if tolerate_load and len(targets) == 1:
        raise BadInput("--tolerate-load compares two calls or more: give another target")
    check_above_0("--budget", budget)
    check_above_0("--precision", precision)
    done = stoppable("before all was timed, so that there is nothing to show; a smaller --budget ends sooner")
    with done, running(*targets, as_json=as_json), _progress() as progress:
        from convwright.measuring.cache import Cache
        from convwright.measuring.compare import compare
        from convwright.measuring.timer import measure_together

        loaded = Targets(targets)
        calls = {target: _call_of(target, loaded) for target in targets}
        models = [target for target, call in calls.items() if call is not loaded.functions[target]]
        timings = measure_together(
            calls, device=device, budget_us=budget * 1e6, precision=precision / 100,
            cache=Cache(cache), threads=threads, memory=memory, energy=energy, progress=progress,
        )  # fmt: skip
    first = timings[targets[0]]
    verdicts = {target: compare(timings[target], first) for target in targets[1:]}
    if as_json:
        from convwright.report.words.plain import as_json as strict_json

        print(strict_json(_record(timings, verdicts)))
    else:
        _print(timings, verdicts, tolerate_load=tolerate_load)
        for target in models:
            print(f"{target}: the model that it returns, run on its example without gradients")
        asked = {"memory": (memory, first.peak_extra_bytes), "energy": (energy, first.energy)}
        missing = [name for name, (wanted, figure) in asked.items() if wanted and figure is None]
        if missing:
            print(f"unknown here, since nothing that can be read counts it: {', '.join(missing)}")


def _call_of(target: str, loaded: Targets) -> Callable[[], object]:
    """What is timed: the function itself, or the model that it returns on its example. A mistake in it shows here."""
    from torch import nn

    from convwright.engine.capture.example import Subject

    returned = loaded.call(target)
    _check_finished(target, returned)
    if isinstance(returned, nn.Module):
        raise BadInput(
            f"{target!r} returns a model ({type(returned).__name__}) without an example, so only making it could be "
            "timed: return (model, example) to time a run of it"
        )
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], nn.Module)):
        return loaded.functions[target]
    run = _without_gradients(Subject.made(returned, by=target))
    try:
        run()
    except Exception as error:  # whatever somebody's model raises
        raise BadInput(f"the model of {target!r} does not run on its example: {in_words(error)}") from error
    return run


def _without_gradients(subject: Subject) -> Callable[[], object]:
    from torch import no_grad

    @no_grad()  # once for each call: what else is timed may want gradients
    def run() -> object:
        return subject()

    return run


def _check_finished(target: str, returned: object) -> None:
    """Refuse a call that hands back its work undone, of which only the making would be timed."""
    if isinstance(returned, Generator | Coroutine | AsyncGenerator):
        if not isinstance(returned, AsyncGenerator):
            returned.close()  # or else Python complains that nobody waited for it
        raise BadInput(
            f"{target!r} must do its work when it is called, and returned an unfinished {type(returned).__name__}: "
            "give a function that runs it to its end"
        )


def _record(timings: Mapping[str, Timing], verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    return {
        "timings": {target: timing.to_json() for target, timing in timings.items()},
        "verdicts": {target: verdict.to_json() for target, verdict in verdicts.items()},
    }


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """A bar on stderr, where that is a terminal. It is drawn between rounds: a thread that draws would disturb them."""
    from rich.progress import Progress

    from convwright.report.words.output import console

    screen = console(stderr=True)
    with Progress(console=screen, auto_refresh=False, transient=True, disable=not screen.is_terminal) as bar:
        task, drawn_s = bar.add_task("timing", total=1.0), 0.0

        def show(share: float) -> None:
            nonlocal drawn_s
            if monotonic() - drawn_s >= _REDRAW_EVERY_S:
                bar.update(task, completed=share, refresh=True)
                drawn_s = monotonic()

        yield show


def _print(timings: Mapping[str, Timing], verdicts: Mapping[str, Verdict], *, tolerate_load: bool) -> None:
    from rich.table import Table

    from convwright.report.words.conditions import print_conditions
    from convwright.report.words.output import output
    from convwright.report.words.unstable import print_unstable
    from convwright.wording.conditions_text import Measured

    console = output()
    rows = {target: _cells(timing, verdicts.get(target)) for target, timing in timings.items()}
    names = [name for name in next(iter(rows.values())) if any(cells[name] for cells in rows.values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("call", overflow="fold")
    for name in names:
        table.add_column(name, justify="left" if name == "beside the first" else "right")
    for target, cells in rows.items():
        table.add_row(target, *(cells[name] for name in names))
    console.print(table)
    if _OVERHEAD in names:
        console.print(f"{_OVERHEAD}: {_WHAT_OVERHEAD_IS}", style="dim")
    # One sentence for all that other work disturbed. A call alone has no ratio that could be given in its place.
    shared = [
        timing.unstable if tolerate_load or (timing.disturbed and len(timings) > 1) else None
        for timing in timings.values()
    ]
    print_unstable(shared, console, noun="call", tolerated=tolerate_load)
    for (target, timing), said in zip(timings.items(), shared, strict=True):
        if timing.unstable and not said and not tolerate_load:
            first, _, _ = timing.unstable.partition("; ")
            console.print(f"{_how_unstable(timing)}: {target}: {first}", style="yellow")
    print_conditions([Measured(timing.conditions, timing.samples) for timing in timings.values()], console, device=True)


def _how_unstable(timing: Timing) -> str:
    """What is said of a time that something speaks against: the same as a search says where it believes none of it."""
    from convwright.core.finding import UNSTABLE
    from convwright.tuning.trials.doubt import doubt

    return f"may be {UNSTABLE}" if doubt(timing, 0.0) is None else UNSTABLE


def _overhead(overhead_us: float, call_us: Interval) -> str:
    """A dash where it may be nothing: the intercept of a line through samples of at least one, two and three calls is
    known no better than three calls are."""
    open_us = 3 * (call_us.high - call_us.low) / 2
    return microseconds(overhead_us) if overhead_us > open_us else "–"


def _cells(timing: Timing, verdict: Verdict | None) -> dict[str, str]:
    """The figures of one call by column; empty where something is not known or was not asked for."""
    energy, extra_bytes = timing.energy, timing.peak_extra_bytes
    return {
        "µs": microseconds(timing.call_us.value),
        "± %": percent_text(timing.call_us),
        _OVERHEAD: "" if timing.overhead_us is None else _overhead(timing.overhead_us, timing.call_us),
        "samples": str(timing.samples),
        "extra KiB": "" if extra_bytes is None else f"{extra_bytes / 1024:.0f}",
        "mJ": "" if energy is None else f"{energy.call_mj.value:.4g}",
        "W": "" if energy is None else f"{energy.power_w:.1f}",
        "idle W": "" if energy is None or energy.idle_w is None else f"{energy.idle_w:.1f}",
        "beside the first": "" if verdict is None else str(verdict),
    }
