"""``convwright predict``: what a problem or a network should take, on a device that need not be in this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convwright.cli.choices import ObjectiveOption, WholePrecision, precision_of
from convwright.cli.model_target import InputShape
from convwright.cli.output_form import AsCsv, AsMarkdown, Layer, Top, check_form, print_rows
from convwright.cli.predict_model import names_model, run_model
from convwright.cli.problem_text import DTYPE_HELP as DTYPE
from convwright.cli.problem_text import complete
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.api.predicted_sweep import PredictedSweep
    from convwright.api.predicting import Predictions
    from convwright.prediction.breakdown import Breakdown


def predict(
    problem: Annotated[
        str,
        typer.Argument(
            help="A problem as `find` takes it (mb32ic256ih14oc256kh3ph1, or 'pool max mb32ic64ih112 kh3sh2ph1'), or a "
            "network as `optimize` takes it (models.py:function).",
            show_default=False,
        ),
    ],
    *,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, or a device that is not in this machine: h200.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="Operations fused after it, for example bias+relu.")] = None,
    tf32: Tf32 = None,
    max_workspace: MaxWorkspace = None,
    objective: ObjectiveOption = Objective.TIME,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="A model's file; by default the one beside the store, or the one that is shipped."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the parts of the choice's time instead of the table.")
    ] = False,
    algorithm: Annotated[
        str | None, typer.Option(help="With --explain: this candidate in place of the choice, by its id or its name.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE=VALUES",
            help="Several values of a convolution's size: iw=200:260, or as `bench` takes them.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --sweep: draw the times to a .png, .svg or .pdf file.")
    ] = None,
    refusals: Annotated[bool, typer.Option(help="List refusals with reasons.")] = True,
    batch: Annotated[
        int | None, typer.Option(help="For a network: the batch size, in place of the example's.", show_default=False)
    ] = None,
    input_: InputShape = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="For a network: fp16, bf16 or tf32 for all layers. Inputs and outputs keep their types.",
        ),
    ] = None,
    layer: Layer = None,
    top: Top = None,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Predict times without running anything, also for other devices.

    It predicts the time, the memory and the energy of a problem's candidates, or of a network's layers. A network is
    planned as `convwright optimize --plan-only` plans it: findings of the device in the store count, and the rest is
    predicted. In JSON, null means that a value cannot be predicted.
    """
    check_form(as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, top=top)
    chosen = precision_of(WholePrecision, precision)
    if names_model(problem):
        _check_network(
            layout=layout, direction=direction, epilogue=epilogue, max_workspace=max_workspace, model=model,
            algorithm=algorithm, sweep=sweep, plot=plot, explain=explain or None, deterministic=deterministic or None,
            objective=None if objective is Objective.TIME else objective,
        )  # fmt: skip
        kept = asked_for(path, reads=True)
        with with_tf32(tf32), kept as store:
            run_model(
                problem, shape=input_, device=device, batch=batch, dtype=dtype, precision=chosen,
                store=store, layer=layer, top=top, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown,
            )  # fmt: skip
        return
    for option, value in (("--batch", batch), ("--precision", precision), ("--input", input_), ("--layer", layer)):
        if value is None:
            continue
        raise BadInput(f"{option} is of a network (module:function), and {problem!r} is a problem")
    from convwright.core.kinds.text import parse
    from convwright.core.policy import Policy

    text = complete(problem, dt=dtype, tag=layout, dir=direction, ep=epilogue)
    parse(text)
    policy = Policy(
        max_workspace_bytes=max_workspace, deterministic=deterministic,
        objective=objective,
    )  # fmt: skip
    if plot is not None and sweep is None:
        raise BadInput("--plot draws a sweep: give --sweep too, for example --sweep iw=200:260")
    if algorithm is not None and not explain:
        raise BadInput("--algorithm says which candidate is explained: give --explain too")
    if sweep is not None and explain:
        raise BadInput("--explain is about one problem, --sweep about several: give one of both")
    if (sweep is not None or explain) and (as_csv or as_markdown or top is not None):
        raise BadInput("--top, --csv and --markdown are of a table of candidates: leave out --sweep and --explain")
    if plot is not None:
        from convwright.wording.pictures import picture_path

        picture_path(plot)
    kept = asked_for(path, reads=True)
    with with_tf32(tf32), kept as store:
        if sweep is not None:
            from convwright.api.predicted_sweep import predict_sweep

            points = predict_sweep(text, sweep, device=device, policy=policy, model=model, store=store)
            _print_sweep(points, plot, as_json=as_json)
            return
        from convwright.api.predicting import predict as predicted

        found = predicted(text, device=device, policy=policy, model=model, store=store)
    if explain:
        _print_made(found.explained(None if algorithm is None else found.called(algorithm)), as_json=as_json)
    elif as_csv or as_markdown:
        from convwright.report.tables.predictions import predictions_data, predictions_sheet

        print_rows(lambda width: predictions_sheet(found), lambda: predictions_data(found), as_csv=as_csv, top=top)
    else:
        _print_all(found, refusals=refusals, top=top, as_json=as_json)


def _check_network(**given: object) -> None:
    """Refuse options that say something of one problem."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(
                f"{option} is of a problem, and a network was given: leave it out, or give the problem of one layer "
                "(`--json` has it as `operation`)"
            )


def _print_all(found: Predictions, *, refusals: bool, top: int | None, as_json: bool) -> None:
    from convwright.report.tables.predictions import print_predictions
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json

    if as_json:
        print(strict_json(found.to_json()))
    else:
        print_predictions(found, output(), refusals=refusals, top=top)


def _print_made(made: Breakdown, *, as_json: bool) -> None:
    from convwright.report.words.plain import as_json as strict_json

    print(strict_json(made.to_json()) if as_json else made)


def _print_sweep(found: PredictedSweep, plot: Path | None, *, as_json: bool) -> None:
    from convwright.report.predicted_curve import draw_predicted
    from convwright.report.words.plain import as_json as strict_json

    if plot is not None:
        draw_predicted(found, plot)
    print(strict_json(found.to_json()) if as_json else found)
