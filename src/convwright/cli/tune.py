"""``convwright tune``: search once for every convolution of a model."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from convwright.cli.advise import LOADING, MAKING, RECORDING, TARGET
from convwright.cli.choices import ModeOption, ObjectiveOption
from convwright.cli.interrupt import kept_or_not, stoppable, stopped
from convwright.cli.model_target import InputShape, subject_of
from convwright.cli.output_form import AsCsv, AsMarkdown, Layer, TolerateLoad, check_form, print_rows
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.errors import BadInput
from convwright.settings import Mode


def tune(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    input_: InputShape = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="By default the model's device. Also cuda; with --plan-only a GPU that is not in this machine: h200."
        ),
    ] = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="Search for the gradients of a training step too.")
    ] = False,
    mode: ModeOption = None,
    layer: Layer = None,
    budget: Annotated[float | None, typer.Option(help="Seconds for each problem; by default the mode's.")] = None,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of PyTorch's own.")] = 2.0,
    objective: ObjectiveOption = Objective.TIME,
    tf32: Tf32 = None,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="Assume that no input has an infinity or NaN.")] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Measure nothing: list the candidates with their workspace.")
    ] = False,
    tolerate_load: TolerateLoad = False,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Find the best candidate for each convolution of a model.

    The store keeps the findings. Ctrl-C stops the search; the next run continues. With --plan-only nothing is measured:
    every layer's candidates are listed, for a GPU that need not be in the machine.
    """

    from convwright.cli.targets import running
    from convwright.core.policy import Policy
    from convwright.naming import check_above_0
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json
    from convwright.report.words.progress import progress_bar

    check_form(as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    if budget is not None and plan_only:
        raise BadInput("--plan-only measures nothing, so that --budget would be ignored")
    if plan_only and mode not in (None, "heuristic"):
        raise BadInput(f"--plan-only measures nothing, so that --mode {mode} would be ignored")
    if tolerate_load and plan_only:
        raise BadInput("--plan-only measures nothing, so that --tolerate-load would be ignored")
    if budget is not None:
        check_above_0("--budget", budget)
    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=objective,
        finite_inputs=finite_inputs,
    )
    done, steps = 0, 0
    early = stoppable("before the first problem")
    kept = asked_for(path, new=True)
    quiet = as_json or as_csv or as_markdown
    with early, running(target, as_json=quiet), kept as store, progress_bar(LOADING) as bar, with_tf32(tf32):
        from convwright.advising.tuned import tune as search
        from convwright.report.tables.tuned import print_tuned, tuned_data, tuned_sheet

        bar(0, 0, MAKING)
        subject = subject_of(target, input_)
        bar(0, 0, RECORDING)

        def progress(step: int, total: int, what: str) -> None:
            nonlocal done, steps
            done, steps = step, total
            bar(step, total, what)

        try:
            tuned = search(
                subject.model, subject.example,
                device=device, backward=backward, mode=Mode.FULL if mode is None else Mode(mode), policy=policy,
                budget_us=None if budget is None else budget * 1e6, plan_only=plan_only, progress=progress,
                layers=layer, tolerate_load=tolerate_load, store=store,
            )  # fmt: skip
        except KeyboardInterrupt:
            said = kept_or_not("what other work did not disturb is remembered")
            got_to = f"after {done} of {steps} problems{said}" if steps else "before the first problem"
            raise stopped(got_to) from None
    if as_json:
        print(strict_json(tuned.to_json()))
    elif as_csv or as_markdown:
        print_rows(partial(tuned_sheet, tuned), partial(tuned_data, tuned), as_csv=as_csv, top=None)
    else:
        print_tuned(tuned, output())
