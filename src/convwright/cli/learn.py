"""``convwright learn``: what was measured on a device becomes a model of its times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convwright.cli.store_path import StorePath


def learn(
    *,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, h200 or the device's key in the store.")
    ] = None,
    store: StorePath = None,
    observations: Annotated[
        Path | None,
        typer.Option(help="A file of observations (.parquet, .jsonl or .jsonl.gz), in place of the store's."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The model's .npz file; by default the one beside the store.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn to predict a device's times from measurements.

    Prints the model's errors on problems that it had not seen.
    """
    from convwright.campaign.learning import learn as fit
    from convwright.report.words.plain import as_json as strict_json

    learned = fit(observations, device=device, store=store, out=out)
    if as_json:
        print(strict_json({"device": learned.model.device, "rows": learned.model.rows, **learned.report.to_json()}))
        return
    print(f"{learned.model.device}: a model of {learned.model.rows:,} measured candidates")
    print(learned.report)
