"""``convwright advise``: what there is to gain in a model."""

from __future__ import annotations

from typing import Annotated

import typer

from convwright.cli.choices import ObjectiveOption, QuickModeOption
from convwright.cli.interrupt import stoppable
from convwright.cli.model_target import InputShape, subject_of
from convwright.cli.output_form import Layer, TolerateLoad
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.settings import Mode

# What is done before the first search, some seconds long.
LOADING, MAKING, RECORDING = "loading PyTorch", "making the model", "recording the model"
TARGET = (
    "module:function or path/to/file.py:function, which returns a model and an example of its input; or timm:NAME or "
    "torchvision:NAME, with --input."
)


def advise(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    input_: InputShape = None,
    device: Annotated[
        str | None,
        typer.Option(help="By default the model's device. Also cuda, or a GPU that is not in this machine: h200."),
    ] = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="Measure a training step instead of a forward pass.")
    ] = False,
    mode: QuickModeOption = None,
    layer: Layer = None,
    top: Annotated[int | None, typer.Option(help="Show the first N rows only.", show_default="all")] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compiled/--no-compiled",
            help="Try torch.compile too, which may take minutes to compile; by default in mode full.",
            show_default=False,
        ),
    ] = None,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of PyTorch's own.")] = 2.0,
    objective: ObjectiveOption = Objective.TIME,
    tf32: Tf32 = None,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="Assume that no input has an infinity or NaN.")] = False,
    tolerate_load: TolerateLoad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a model's convolutions, layer by layer, and suggest changes that make them faster.

    The model is not changed.
    """

    from convwright.cli.targets import running
    from convwright.core.policy import Policy
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json
    from convwright.report.words.progress import progress_bar

    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=objective,
        finite_inputs=finite_inputs,
    )
    kept = stoppable("before all was measured", kept="searches that were done are remembered")
    with kept, running(target, as_json=as_json), progress_bar(LOADING) as progress, with_tf32(tf32):
        from convwright.advising.advise import advise as look
        from convwright.report.tables.advice import print_advice

        progress(0, 0, MAKING)
        subject = subject_of(target, input_)
        progress(0, 0, RECORDING)
        advice = look(
            subject.model, subject.example,
            device=device, backward=backward, mode=Mode.QUICK if mode is None else Mode(mode), policy=policy,
            top=top, compiled=compiled,
            layers=layer, tolerate_load=tolerate_load, progress=progress,
        )  # fmt: skip
    if as_json:
        print(strict_json(advice.to_json()))
    else:
        print_advice(advice, output())
