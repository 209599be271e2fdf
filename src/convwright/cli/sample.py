"""``convwright sample``: measure many candidates of many problems, and carry what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from convwright.campaign.campaign import DEADLINE_S, MOST_CANDIDATES, REPEAT
from convwright.cli.choices import RecordedMode
from convwright.cli.duration import seconds_of
from convwright.cli.interrupt import stoppable, stopped
from convwright.cli.store_path import StorePath, opened
from convwright.errors import BadInput, StoreError
from convwright.naming import singular

_AT_ONCE = 1000

sample_app = typer.Typer()


@sample_app.callback(invoke_without_command=True)
def sample(
    context: typer.Context,
    *,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cuda where there is a GPU")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long to measure, for example 90s, 8m or 2h.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal problems.")] = 0,
    sources: Annotated[
        str, typer.Option(help="Sources of problems: random, networks, kinds; with shares: random=2,networks=1.")
    ] = "random=0.5,networks=0.3,kinds=0.2",
    campaign: Annotated[
        str | None,
        typer.Option(help="The campaign's name. The same name continues it.", show_default="one for each seed"),
    ] = None,
    gpus: Annotated[str, typer.Option(help="all, or the numbers of GPUs with commas between.")] = "all",
    repeat: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of problems that are measured twice.")
    ] = REPEAT,
    energy_every: Annotated[
        int | None, typer.Option(metavar="N", help="Measure energy too after one of N timings, for 5 s.")
    ] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Prefer problems with the least certain predictions.")
    ] = False,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Kill a candidate that takes longer.")
    ] = f"{DEADLINE_S:.0f}s",
    most: Annotated[
        int, typer.Option(metavar="N", help="Candidates of each problem; for one in eight four times as many.")
    ] = MOST_CANDIDATES,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, whose workers measure: tcp://host:8786.")
    ] = None,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure many problems, for predictions to learn from.

    An observation of each candidate is kept in the store. Ctrl-C ends it, and the next run of the same campaign
    continues.
    """
    if context.invoked_subcommand is not None:
        if path is not None or as_json:
            verb = context.invoked_subcommand
            raise BadInput(f"options go after the verb: convwright sample {verb} FILE --store PATH")
        return
    if for_ is None:
        raise BadInput("--for says how long to measure, for example --for 8m")
    seconds, deadline_s = seconds_of("--for", for_), seconds_of("--deadline", deadline)
    said = ""
    with stoppable("before the first problem"):
        from convwright.campaign.problems import shares_of
        from convwright.campaign.sample import check_device

        shares_of(sources)
        check_device(device, gpus, cluster)
    with stoppable("before the first problem"), _kept(path):
        from convwright.campaign.sample import sample as measure
        from convwright.report.words.output import output
        from convwright.report.words.plain import as_json as strict_json
        from convwright.report.words.progress import progress_bar

        with progress_bar("starting processes") as bar:

            def progress(done: int, total: int, what: str) -> None:
                nonlocal said
                said = what.rpartition(",")[0] or said
                bar(done, total, what)

            try:
                found = measure(
                    device, seconds=seconds, seed=seed, sources=sources, store=path, campaign=campaign,
                    gpus=gpus, repeat=repeat, energy_every=energy_every, adaptive=adaptive, deadline_s=deadline_s,
                    most=most, cluster=cluster, progress=progress,
                )  # fmt: skip
            except KeyboardInterrupt:
                raise stopped(f"after {said or 'no problem'}; they are kept, and the next run goes on") from None
        if as_json:
            print(strict_json(found.to_json()))
        else:
            output().print(str(found))


@contextmanager
def _kept(path: str | None) -> Iterator[None]:
    """The store that observations are kept in; an error says what a campaign needs it for."""
    from convwright.store.database import NOT_KEPT

    with ExitStack() as store:
        try:
            store.enter_context(opened(path, new=True))
        except (BadInput, StoreError) as error:
            why = str(error).removeprefix(NOT_KEPT).removeprefix("nothing was done, since ")
            raise type(error)(f"a campaign needs a store for its observations: {why}") from error
        yield


@sample_app.command("export")
def export(
    file: Annotated[str, typer.Argument(help="The Apache Parquet file to write.")],
    *,
    device: Annotated[str | None, typer.Option(help="Only observations of this device.")] = None,
    mode: Annotated[
        RecordedMode | None,
        typer.Option(metavar="MODE", help="Only observations of this mode: campaign, full or quick."),
    ] = None,
    path: StorePath = None,
) -> None:
    """Write observations as a table, one row each, that other programs read."""
    from convwright.campaign.parquet import check_target, write

    check_target(file)
    with opened(path, reads=True) as store:
        rows = write(lambda: store.observations(device=device, mode=mode), file)
    print(singular(f"{rows:,} observations written to {file}"))


@sample_app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A file that `export` wrote.")],
    *,
    path: StorePath = None,
) -> None:
    """Take observations of a table into the store. What is there already is not added again."""
    from itertools import islice

    from convwright.campaign.parquet import read

    new = count = 0
    with opened(path, new=True) as store:
        left = read(file)
        while some := list(islice(left, _AT_ONCE)):
            new += store.observe(some)
            count += len(some)
    print(singular(f"{new:,} observations taken in, {count - new:,} already in the store"))
