"""``convwright find``: every way of computing one convolution."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convwright.cli.problem_text import complete
from convwright.errors import BadInput
from convwright.naming import one_of

_SHAPE = "sizes, comma-separated, for example 32,256,14,14"


def find(
    problem: Annotated[
        str | None, typer.Argument(help="The convolution, for example mb32ic256ih14oc256kh3ph1.", show_default=False)
    ] = None,
    *,
    input: Annotated[str | None, typer.Option(help=f"Instead of PROBLEM: the input's {_SHAPE}.")] = None,  # noqa: A002
    weight: Annotated[str | None, typer.Option(help="The weight's sizes, for example 256,256,3,3.")] = None,
    stride: Annotated[str, typer.Option(help="With --input: one number, or one per dimension.")] = "1",
    padding: Annotated[str, typer.Option(help="With --input: one number, or one per dimension.")] = "0",
    dilation: Annotated[str, typer.Option(help="With --input: one number, or one per dimension; 1 is dense.")] = "1",
    groups: Annotated[int, typer.Option(help="With --input: number of groups.")] = 1,
    dtype: Annotated[str | None, typer.Option(help="fp64, fp32, fp16 or bf16; fp32 by default.")] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="What is fused behind it, for example bias+relu.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, or one that is elsewhere: h200. The best here by default.")
    ] = None,
    mode: Annotated[str, typer.Option(help="heuristic (nothing runs), quick (200 ms) or full (30 s).")] = "full",
    budget: Annotated[float | None, typer.Option(help="Seconds, in place of the mode's.", show_default=False)] = None,
    max_workspace: Annotated[int | None, typer.Option(help="Most workspace in bytes.")] = None,
    max_error: Annotated[float, typer.Option(help="Most error, in multiples of PyTorch's own.")] = 2.0,
    objective: Annotated[
        str, typer.Option(help="What is made least: time, device-time, energy, workspace or time-then-workspace.")
    ] = "time",
    deterministic: Annotated[bool, typer.Option(help="Only candidates that are deterministic.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="No input holds an infinity or NaN.")] = False,
    trust: Annotated[
        str | None, typer.Option(help="trust what the store says, or verify it first; by default CONVWRIGHT_TRUST.")
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run candidates in a process of their own, which may crash or hang.")
    ] = False,
    energy: Annotated[bool, typer.Option("--energy", help="Energy of the best as well: 5 s each.")] = False,
    refusals: Annotated[bool, typer.Option(help="Show what was refused, and why.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Every way of computing a convolution: time, limit, errors, workspace, and why each won, lost or was refused."""
    from rich.console import Console

    from convwright.core.policy import Objective, Policy
    from convwright.core.problem import ConvProblem
    from convwright.ops.face import find as search
    from convwright.report.plain import as_json as strict_json
    from convwright.report.progress import progress_bar
    from convwright.report.table import print_findings

    if problem is not None and (input is not None or weight is not None):
        raise BadInput("find takes a problem's text or --input and --weight, got both")
    if problem is None:
        if input is None or weight is None:
            raise BadInput("find needs a problem such as mb32ic256ih14oc256kh3ph1, or both --input and --weight")
        described = ConvProblem.of(
            _numbers("--input", input), _numbers("--weight", weight),
            stride=_numbers("--stride", stride), padding=_numbers("--padding", padding),
            dilation=_numbers("--dilation", dilation), groups=groups,
        )  # fmt: skip
        problem = described.key.partition(" ")[0]
    problem = complete(problem, dt=dtype, tag=layout, dir=direction, ep=epilogue)
    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=one_of(Objective, "objective", objective),
        finite_inputs=finite_inputs,
    )
    with progress_bar() as bar:
        found = search(
            problem, device=device, mode=mode, policy=policy, budget_us=None if budget is None else budget * 1e6,
            trust=trust, isolate=isolate, energy=energy, progress=lambda what, done, of: bar(done, of, what),
        )  # fmt: skip
    if as_json:
        print(strict_json(found.to_json()))
    else:
        # A pipe has no width of its own; a terminal narrower than the table gets fewer columns.
        print_findings(found, Console() if sys.stdout.isatty() else Console(width=200), refusals=refusals)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"{option} takes numbers separated by commas, got {text!r}") from None
