"""``convwright optimize``: plan a whole network, and keep it in a folder."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from convwright.cli.advise import LOADING, MAKING, TARGET
from convwright.cli.choices import MODE_HELP, Precision, SearchMode, precision_of
from convwright.cli.interrupt import stoppable
from convwright.cli.model_target import InputShape, model_and_example
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace, MemoryBudget
from convwright.core.dtype import DType
from convwright.errors import BadInput


def optimize(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    input_: InputShape = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write the engine to.", show_default=False)] = None,
    kernels: Annotated[
        bool,
        typer.Option("--kernels", help="Write the compiled kernels as well, for `convwright run --trust-kernels`."),
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="Cast the model and its example to fp16, bf16 or fp32 first.", show_default=False)
    ] = None,
    mode: Annotated[SearchMode, typer.Option(metavar="MODE", help=MODE_HELP)] = SearchMode.QUICK,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of the model's own.")] = 2.0,
    tf32: Tf32 = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="If the model cannot be exported as a whole, plan the parts that can.")
    ] = False,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="fp16, bf16 or tf32 for all layers, or mixed: for each what --max-output-error allows. By default "
            "the model's own. Inputs and outputs keep their types.",
            show_default=False,
        ),
    ] = None,
    max_output_error: Annotated[
        float | None,
        typer.Option(
            help="With --precision mixed: most relative L2 error of an output, 0.001 by default.", show_default=False
        ),
    ] = None,
    buckets: Annotated[
        str | None,
        typer.Option(
            help="Plan for several sizes: batches, as 1,32, or shapes, as 1x3x224x224,8x3x512x512. "
            "The shapes of several inputs are joined by +.",
            show_default=False,
        ),
    ] = None,
    memory_budget: MemoryBudget = None,
    plan_only: Annotated[
        bool,
        typer.Option("--plan-only", help="Run nothing: plan from the store's findings and from predictions."),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            help="Move the model and its example to cpu or cuda first; by default they stay where they are. "
            "With --plan-only also a device that is not in this machine, such as h200.",
            show_default=False,
        ),
    ] = None,
    path: StorePath = None,
) -> None:
    """Plan a whole network and run it as one engine.

    Prints which kernel computes each layer, and in which layout. With --out the engine is written to a folder, which
    `convwright run` and cw.load read. On the device, cw.load(folder, on_change="replan") makes an engine from a folder
    that --plan-only wrote.
    """
    from convwright.cli.steps import print_engine
    from convwright.cli.targets import running
    from convwright.core.policy import Policy
    from convwright.report.words.progress import progress_bar
    from convwright.settings import Mode

    if out is not None and out.exists() and not out.is_dir():  # said now, and not when all is planned
        raise BadInput(f"--out: an engine is written to a folder, and {str(out)!r} is a file")
    if kernels and out is None:
        raise BadInput("--kernels belongs to --out: the compiled kernels are written to that folder")
    if dtype is not None and DType.parse(dtype).narrow:
        raise BadInput(f"--dtype must be fp16, bf16, fp32 or fp64, got {dtype!r}; `convwright quantize` judges int8")
    if kernels and plan_only:
        raise BadInput("--plan-only compiles nothing, so that --kernels would be ignored")
    given = precision_of(Precision, precision)
    policy = Policy(max_workspace_bytes=max_workspace, max_error=max_error, deterministic=deterministic)
    kept = stoppable("before the network was planned", kept="searches that were done are remembered")
    chosen = asked_for(path, new=True)
    with kept, running(target, as_json=False), chosen as store, progress_bar(LOADING) as bar, with_tf32(tf32):
        from convwright.engine.buckets.buckets import bucket_from
        from convwright.engine.optimize import optimize as plan
        from convwright.engine.partial import PartialEngine
        from convwright.engine.precision.lowering import Precision as Lowered

        lowered = None if given is None else Lowered(given)
        if out is not None:
            _check_folder(out)
        bar(0, 0, MAKING)
        model, example = model_and_example(target, dtype, None if plan_only else device, shape=input_)
        if plan_only:
            _refuse_sizes(buckets, partial=partial, max_output_error=max_output_error)
            planned = plan(
                model, example, policy=policy, mode=Mode(mode), progress=bar, precision=lowered,
                memory_budget=memory_budget, plan_only=True, device=device, store=store,
            )  # fmt: skip
            if out is not None:
                planned.save(out)
            print_engine(planned)
            if out is not None:
                print(f"the plan is in {out}: `convwright explain {quote(str(out))}` prints it")
            return
        sizes = None if buckets is None else [bucket_from(each) for each in buckets.split(",")]
        engine = plan(
            model, example, policy=policy, mode=Mode(mode), progress=bar, partial=partial, precision=lowered,
            max_output_error=max_output_error, buckets=sizes, memory_budget=memory_budget, store=store,
        )  # fmt: skip
        if out is not None:
            if isinstance(engine, PartialEngine):
                raise BadInput("a model that is planned in parts needs its own code: it cannot be written to a folder")
            engine.save(out, kernels=kernels)
    print_engine(engine)
    if out is not None:
        print(f"the engine is in {out}: `convwright run {quote(str(out))}` runs it")


def _check_folder(out: Path) -> None:
    """Refuse a folder that cannot be made or written, before anything is planned."""
    from convwright.engine.saving.saved import check_folder

    is_new = not out.exists()
    check_folder(out)
    if is_new:
        out.rmdir()


def _refuse_sizes(buckets: str | None, *, partial: bool, max_output_error: float | None) -> None:
    """Refuse options that a plan of one size would ignore."""
    given = {"--buckets": buckets, "--partial": partial, "--max-output-error": max_output_error}
    for option, value in given.items():
        if value:
            raise BadInput(f"--plan-only plans the whole model for one size, so that {option} would be ignored")
