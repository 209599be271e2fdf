"""The steps of an engine or of a plan, as commands print them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from convwright.cli.output_form import print_rows
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.report.tables.steps import Planned


def print_engine(
    engine: Planned,
    *,
    layer: str | None = None,
    top: int | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    as_markdown: bool = False,
) -> None:
    """The steps as a table with what the whole comes to, or in the form that was asked for. ``layer`` is a pattern for
    the names of steps."""
    from convwright import strict_json
    from convwright.engine.planned_engine import PlannedEngine
    from convwright.report.tables.steps import print_steps, steps_data, steps_sheet
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as rows_as_json

    if as_json and isinstance(engine, PlannedEngine):
        if layer is not None or top is not None:
            raise BadInput("--json prints a whole plan, so that --layer and --top would be ignored")
        print(strict_json.dumps(engine.to_json()))
    elif as_json:
        print(rows_as_json({"steps": steps_data(engine, layer)[:top]}))
    elif as_csv or as_markdown:
        print_rows(lambda width: steps_sheet(engine, layer), partial(steps_data, engine, layer), as_csv=as_csv, top=top)
    else:
        print_steps(engine, output(), layer=layer, top=top)
