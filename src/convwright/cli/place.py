"""``convwright place``: which jobs run on which devices, by estimates that are given or predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.choices import PlacementAim
from convwright.cli.store_path import StorePath
from convwright.errors import BadInput
from convwright.naming import check_above_0
from convwright.wording.pictures import picture_path

if TYPE_CHECKING:
    from convwright.placement.spec import Spec

PREDICTING = "predicting"


def place(
    spec: Annotated[
        Path, typer.Argument(help="A TOML file with tables [[job]], [[device]], and [[model]] or [[estimate]].")
    ],
    *,
    objective: Annotated[
        PlacementAim, typer.Option(metavar="OBJECTIVE", help="What to minimise: makespan, energy, latency or cost.")
    ] = PlacementAim.MAKESPAN,
    gap: Annotated[
        float, typer.Option(help="Stop once no placement can be better by more than this share: 0.01 is 1 %.")
    ] = 0.0,
    limit: Annotated[float, typer.Option(metavar="SECONDS", help="Stop the search after this time.")] = 30.0,
    simulate: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Simulate the streams for this time, and print how long images wait.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --simulate, how long an image waits at most for its batch to fill.",
            show_default="0",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the jobs on the workers of a Dask scheduler, such as tcp://host:8786.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="With --run, how long each job and each stream runs at most.", show_default="10"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the schedule to a .png, .svg or .pdf file.", show_default=False)
    ] = None,
    store: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide which jobs run on which devices, and when.

    It prints batch sizes and a schedule, and what limits them. Nothing runs without --run.

    Times of a [[model]] without an [[estimate]] are predicted. With --run each worker of the cluster is an instance of
    the device whose name it offers as a resource. Measured times of batches are printed next to predicted ones. The
    work of a lost worker is placed again.
    """
    from convwright import placement, strict_json
    from convwright.placement.placement import seconds_text
    from convwright.placement.question import Objective
    from convwright.report.words.progress import progress_bar

    for option, value in (("--simulate", simulate), ("--limit", limit)):
        if value is not None:
            check_above_0(option, value)
    _check(run, simulate=simulate, wait=wait, seconds=seconds, picture=picture)
    given, aim = placement.read_spec(spec), Objective(objective)
    if store is not None and not given.models:
        raise BadInput(
            f"--store is for models whose times are predicted, and {spec.name} has no [[model]]: leave it out"
        )
    if run is not None:
        with progress_bar(PREDICTING) as bar:
            came = placement.run_jobs(
                given.jobs, given.devices, given.estimates, aim, cluster=run, models=_models(given, every=True),
                seconds=10.0 if seconds is None else seconds, store=store, progress=bar, gap=gap, limit_s=limit,
            )  # fmt: skip
        print(strict_json.dumps(came.to_json()) if as_json else came)
        return
    with progress_bar(PREDICTING) as bar:
        found = placement.place(
            given.jobs, given.devices, given.estimates, aim, models=_models(given), store=store, progress=bar,
            gap=gap, limit_s=limit,
        )  # fmt: skip
    queues = None if simulate is None else placement.simulate(found, seconds=simulate, wait_limit_s=wait or 0.0)
    if picture is not None:
        placement.draw(found, picture)
    if as_json:
        print(strict_json.dumps(found.to_json() | ({} if queues is None else {"simulated": queues.to_json()})))
        return
    print(found)
    if picture is not None:
        print(f"schedule drawn to {picture}")
    for each in () if queues is None else queues.streams:
        late = "" if each.late is None else f", {each.late:.1%} late"
        print(
            f"{each.job} in a simulation of {simulate:g} s: half of the images within {seconds_text(each.p50_s)}, 99 % "
            f"within {seconds_text(each.p99_s)}{late}, {each.mean_batch:.3g} in a batch"
        )


def _check(
    run: str | None, *, simulate: float | None, wait: float | None, seconds: float | None, picture: Path | None
) -> None:
    """Refuse options that would be ignored, before anything is predicted."""
    if wait is not None and simulate is None:
        raise BadInput("--wait is of a simulation: give --simulate SECONDS too, or leave it out")
    if seconds is not None and run is None:
        raise BadInput("--seconds limits a run: give --run ADDRESS too, or leave it out")
    for option, value in (("--simulate", simulate), ("--picture", picture)):
        if run is not None and value is not None:
            raise BadInput(f"{option} is of a placement that does not run: leave out --run or {option}")
    if picture is not None:
        picture_path(picture)


def _models(given: Spec, *, every: bool = False) -> dict[str, tuple[Any, ...]]:
    """The models that are to be predicted, or every one. A model whose estimates are all given need not be there to be
    placed."""
    from convwright.cli.model_target import model_and_example
    from convwright.placement.predicted import missing

    keys = {each.key for each in given.models}
    if not every:
        keys = {each.key for each in missing(given.jobs, given.devices, given.estimates, keys)}
    return {
        each.key: (*model_and_example(each.target, each.dtype), each.precision)
        for each in given.models if each.key in keys
    }  # fmt: skip
