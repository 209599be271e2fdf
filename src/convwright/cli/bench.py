"""``convwright bench``: what there is to gain over a suite of problems, or over a sweep of sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convwright.cli.choices import ObjectiveOption, QuickModeOption
from convwright.cli.interrupt import stopped
from convwright.cli.output_form import AsCsv, AsMarkdown, TolerateLoad, check_form, print_rows
from convwright.cli.problem_text import direction_word, layout_word
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.errors import BadInput
from convwright.naming import one_of

if TYPE_CHECKING:
    from convwright.report.benchmarks.under_way import Run


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM|SUITE",
            help="A convolution such as ic64ih56oc64kh3ph1, a suite's name, or the path of a suite's file.",
            show_default=False,
        ),
    ],
    *,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Several values of one size: ih=64..512:*2, ic=8..64:+8, kh=1,3,5. All sweeps are combined."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N problems.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images in the batch, in place of the suite's.")] = None,
    dtype: Annotated[str | None, typer.Option(help="fp64, fp32, fp16 or bf16; fp32 by default.")] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="Operations fused after it, for example bias+relu.")] = None,
    tf32: Tf32 = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1, or one that is not in this machine: h200; by default the best."),
    ] = None,
    mode: QuickModeOption = None,
    budget: Annotated[float | None, typer.Option(help="Seconds for each problem; by default the mode's.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure everything anew, without the store.")] = False,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of PyTorch's own.")] = 2.0,
    objective: ObjectiveOption = Objective.TIME,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="Assume that no input has an infinity or NaN.")] = False,
    out: Annotated[Path | None, typer.Option(help="A file to which each result is added as a line of JSON.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Leave out problems that are in the file of --out.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw time over the first sweep or over the suite: a .png, .svg or .pdf file.")
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="With --plot, more lines: cudnn/gemm,cudnn/fft,cudnn/engine-*. A name with * is the fastest match."
        ),
    ] = None,
    plot_fit: Annotated[Path | None, typer.Option(help="Draw the samples and the fitted line of one problem.")] = None,
    tolerate_load: TolerateLoad = False,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Compare the best candidates with PyTorch over many problems.

    The table has times, errors and the share of the physical limit, for a suite of problems or for a sweep of sizes.
    Ctrl-C stops it. With --out and --resume the next run continues.
    """
    from convwright import suites
    from convwright.api.finding import refuse_ignored, why_nothing_is_measured
    from convwright.cli.plots import Plots
    from convwright.core.policy import Policy
    from convwright.core.problem import ConvProblem
    from convwright.measuring.hardware.machine import device_facts
    from convwright.naming import between_commas, check_above_0
    from convwright.report.benchmarks.lines import Lines
    from convwright.report.benchmarks.result import Asked
    from convwright.report.benchmarks.under_way import Doing, Run
    from convwright.settings import Mode
    from convwright.store.store import Store
    from convwright.suites.sweep import Sweep, swept
    from convwright.tuning.find import Findings, find
    from convwright.tuning.listing import spaced
    from convwright.tuning.session import using
    from convwright.tuning.upcoming import Upcoming

    check_form(as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    if fresh and path is not None:
        raise BadInput("--fresh leaves every store alone, so that --store would be ignored")
    for option, given in (("--limit", limit), ("--batch", batch), ("--budget", budget)):
        if given is not None:
            check_above_0(option, given)
    sweeps = [Sweep.parse(text) for text in sweep or ()]
    suite = suites.asked_for(what, {each.size: each.values[0] for each in sweeps}).with_(
        batch=batch, dtype=dtype, layout=layout_word(layout), direction=direction_word(direction), epilogue=epilogue
    )
    suite = swept(suite, sweeps)
    if limit is not None and limit < len(suite.rows):
        suite = replace(suite, rows=suite.rows[:limit], title=f"{suite.title}, the first {limit}")
    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=objective,
        finite_inputs=finite_inputs,
    )
    wanted = Mode.QUICK if mode is None else one_of(Mode, "mode", mode, but=Mode.OFF)
    facts = device_facts(device)
    if (nothing := why_nothing_is_measured(facts, wanted)) is not None:
        asked_to_run = mode is not None and wanted.measures
        measuring = {"--budget": budget, "--tolerate-load": tolerate_load, f"--mode {wanted}": asked_to_run}
        refuse_ignored(measuring, nothing)
        wanted = Mode.HEURISTIC if wanted.measures else wanted
    asked = Asked(suite.name, facts, wanted, policy, tf32)
    runs = wanted.measures
    names = None if algorithms is None else tuple(map(spaced, between_commas(algorithms)))
    plots = Plots(plot, plot_fit, names, tuple(sweeps))
    with with_tf32(tf32):
        plots.check(suite.rows, asked, runs=runs)
        if resume and out is None:
            raise BadInput("--resume continues the file that --out names: give --out too")
        budget_us = None if budget is None else budget * 1e6
        chosen = asked_for(path, new=True)
        with chosen as named, using(Store.open(None) if fresh else named) as store:
            problems = [row.problem for row in suite.rows]
            upcoming = Upcoming(problems, asked.device, policy, mode=wanted, store=store, budget_us=budget_us)

            def searched(problem: ConvProblem, doing: Doing) -> Findings:
                upcoming.at(problem)
                return find(
                    problem, asked.device, policy, mode=wanted, store=store, budget_us=budget_us,
                    tolerate_load=tolerate_load, progress=doing,
                )  # fmt: skip

            run = Run(suite, asked, searched, Lines(out) if out is not None else None)
            with upcoming.compiling():
                interrupted = _run(run, resume=resume)
        if as_csv or as_markdown:
            _print_rows(run, as_csv=as_csv)
        else:
            _print(run, as_json=as_json)
        if interrupted is not None:
            raise interrupted
        plots.draw(run)
    if any(record["failure"] is not None for record in run.records):
        raise typer.Exit(1)


def _run(run: Run, *, resume: bool) -> typer.Exit | None:
    """The end of the command where it was stopped."""
    from convwright.report.words.progress import progress_bar

    try:
        with progress_bar() as progress:
            run.go(progress, resume=resume)
    except KeyboardInterrupt:
        done, rows = len(run.records), len(run.suite.rows)
        kept = f", which are in {run.lines.path}; --resume goes on" if run.lines is not None and done else ""
        return stopped(f"after {done} of {rows} problems{kept}")
    return None


def _print_rows(run: Run, *, as_csv: bool) -> None:
    from convwright.report.benchmarks.result import Result
    from convwright.report.benchmarks.table import results_data, results_sheet

    results = [Result.of(record) for record in run.records]
    print_rows(partial(results_sheet, results), partial(results_data, results), as_csv=as_csv, top=None)


def _print(run: Run, *, as_json: bool) -> None:
    from rich.text import Text

    from convwright.report.benchmarks.result import Result
    from convwright.report.benchmarks.table import Summary, print_results
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json
    from convwright.report.words.too_large import print_too_large

    results = [Result.of(record) for record in run.records]
    if as_json:
        print(strict_json({"results": run.records, "summary": Summary.of(results).to_json()}))
        return
    console = output()
    head = f"{run.suite.title} · " if run.suite.name else ""
    console.print(Text(f"{head}{run.asked}", style="bold"))
    print_results(results, console)
    print_too_large(((row.name, row.problem) for row in run.suite.rows[: len(results)]), run.asked.device, console)
