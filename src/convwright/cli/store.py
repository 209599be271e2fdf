"""``convwright store``: what is remembered, and how to carry it, prune it, forget it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.store_path import StorePath, opened
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.store.store import Store

_DAY_S = 86_400.0

store_app = typer.Typer(help="Show, copy or delete what was measured.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@store_app.callback(invoke_without_command=True)
def store(context: typer.Context, *, path: StorePath = None, as_json: AsJson = False) -> None:
    """Show, copy or delete what was measured."""
    if context.invoked_subcommand is None:
        show(path=path, as_json=as_json)
    elif path is not None or as_json:
        verb = context.invoked_subcommand
        raise BadInput(f"options go after the verb: convwright store {verb} {'--json' if as_json else '--store PATH'}")


@store_app.command("show")
def show(*, path: StorePath = None, as_json: AsJson = False) -> None:
    """Show the number of findings for each device, and the place of the store. `convwright store` does the same."""
    from convwright.report.tables.store import print_summary, summary_to_json
    from convwright.report.words.output import output

    with opened(path, reads=True) as opened_store:
        summary = opened_store.summary()
    if as_json:
        _print_json(summary_to_json(summary))
    else:
        print_summary(summary, output())


@store_app.command("list")
def list_(
    problem: Annotated[
        str | None, typer.Argument(help="A convolution, for example ic16ih32oc32kh3ph1; all by default.")
    ] = None,
    *,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """List the measured problems, or the findings about one of them."""
    from convwright.report.tables.store import known_to_json, print_known, print_problems, problems_to_json
    from convwright.report.words.output import output

    with opened(path, reads=True) as opened_store:
        if problem is None:
            problems = opened_store.problems()
            _print_json(problems_to_json(problems)) if as_json else print_problems(problems, output())
            return
        key = _key(problem, opened_store)
        known = {each.device: opened_store.findings(key, each.device) for each in opened_store.problems(key)}
    _print_json(known_to_json(key, known)) if as_json else print_known(key, known, output())


@store_app.command("export")
def export(
    file: Annotated[str, typer.Argument(help="The file to write, as lines of JSON; - is the standard output.")],
    *,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Write all findings and observations to a file that another machine can import."""
    if file == "-" and as_json:
        raise BadInput("export to the standard output writes lines of JSON already, leave --json out")
    with opened(path, reads=True) as opened_store:
        lines = opened_store.export(sys.stdout if file == "-" else file)
    if file != "-":
        _say(
            as_json,
            {"lines": lines, "file": file},
            f"{_counted(lines, 'line')} of findings, searches and observations written to {file}",
        )


@store_app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A file that `export` wrote; - is the standard input.")],
    *,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Import what another store exported. Newer findings win; if a line is bad, nothing is imported."""
    with opened(path, new=True) as opened_store:
        merged = opened_store.load(sys.stdin if file == "-" else file)
    _say(
        as_json,
        {
            "findings": merged.findings,
            "searches": merged.searches,
            "observations": merged.observations,
            "older": merged.older,
        },
        f"taken in: {_counted(merged.findings, 'finding')}, {_counted(merged.searches, 'finished search', 'es')}, "
        f"{_counted(merged.observations, 'observation')}; "
        f"left out, since not newer than what was known: {merged.older}",
    )


@store_app.command("prune")
def prune(
    *,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Remove findings that were not made or used for this many days."),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Remove findings about devices of this machine with other versions.")
    ] = False,
    observations: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Remove observations that are older than this many days.")
    ] = None,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Remove findings that are old, or that no longer count, and old observations."""
    from convwright.cli.counting import counting
    from convwright.naming import check_not_below_0

    if older_than is None and observations is None and not stale:
        raise BadInput("prune needs --older-than DAYS, --stale or --observations DAYS, or several of them")
    for name, days in (("--older-than", older_than), ("--observations", observations)):
        if days is not None:
            check_not_below_0(name, days)
    removed, gone = 0, 0
    with opened(path) as opened_store:
        if stale or older_than is not None:
            keep = counting(each.device for each in opened_store.summary().devices) if stale else None
            removed = opened_store.prune(None if older_than is None else older_than * _DAY_S, keep_fingerprints=keep)
        if observations is not None:
            gone = opened_store.prune_observations(observations * _DAY_S)
    also = "" if observations is None else f" and {_counted(gone, 'observation')}"
    _say(as_json, {"removed": removed, "observations": gone}, f"removed {_counted(removed, 'finding')}{also}")


@store_app.command("clear")
def clear(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, forget everything.")] = False,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """Forget everything, what is in quarantine and the tasks of campaigns included."""
    with opened(path) as opened_store:
        devices = opened_store.summary().devices
        findings, observations = (sum(getattr(each, name) for each in devices) for name in ("findings", "observations"))
        said = _counted(findings, "finding")
        said += f" and {_counted(observations, 'observation')}" if observations else ""
        if not yes:
            raise BadInput(f"clear forgets {said} in {opened_store.place}: say so with --yes")
        opened_store.clear()
    _say(as_json, {"removed": findings, "observations": observations}, f"forgot {said}")


@store_app.command("quarantine")
def quarantine(
    *,
    release: Annotated[
        str | None, typer.Option(metavar="ID|all", help="Give this candidate, or all, another chance.")
    ] = None,
    path: StorePath = None,
    as_json: AsJson = False,
) -> None:
    """List candidates whose first run ended their process. They run again once they are released."""
    from convwright.report.tables.store import print_quarantine, quarantine_to_json
    from convwright.report.words.output import output

    with opened(path, reads=release is None) as opened_store:
        kept = opened_store.quarantine()
        if release is None:
            _print_json(quarantine_to_json(kept)) if as_json else print_quarantine(kept, output())
            return
        if release != "all" and release not in {place.candidate for place in kept}:
            raise BadInput(
                f"no candidate called {release!r} is in quarantine; `convwright store quarantine` lists them"
            )
        released = opened_store.release(candidate_id=None if release == "all" else release)
    _say(as_json, {"released": released}, f"released {_counted(released, 'candidate')}")


def _key(text: str, opened_store: Store) -> str:
    """A problem's key, given as it stands in the store or as people write it."""
    from convwright.core.kinds.text import parse

    return text if opened_store.problems(text) else parse(text).key


def _say(as_json: bool, data: dict[str, Any], sentence: str) -> None:
    if as_json:
        _print_json(data)
    else:
        print(sentence)


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"


def _print_json(data: Any) -> None:
    from convwright.report.words.plain import as_json

    print(as_json(data))
