"""``convwright find``: measure all candidates for one problem."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.choices import ModeOption, ObjectiveOption
from convwright.cli.interrupt import stoppable
from convwright.cli.output_form import AsCsv, AsMarkdown, TolerateLoad, Top, check_form, print_rows
from convwright.cli.problem_text import DTYPE_HELP as DTYPE
from convwright.cli.problem_text import complete
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.errors import BadInput
from convwright.naming import one_of
from convwright.settings import Trust

if TYPE_CHECKING:
    from convwright.core.kinds.problem import Problem

_SHAPE = "sizes, comma-separated, for example 32,256,14,14"
_BY_NAME = ("same", "valid")
_EACH = "one number, or one per dimension"


def find(
    problem: Annotated[
        str | None,
        typer.Argument(
            help="A convolution, for example mb32ic256ih14oc256kh3ph1. Other problems begin with their kind: "
            "'linear ic512oc1000mb32', 'copy mb32ic64ih56 nchw->nhwc', 'pool max mb32ic64ih112 kh3sh2ph1', "
            "'resize nearest mb32ic64ih28 oh56', 'pointwise \"relu(a + b)\" mb32ic64ih56'.",
            show_default=False,
        ),
    ] = None,
    *,
    input: Annotated[str | None, typer.Option(help=f"Instead of PROBLEM: the input's {_SHAPE}.")] = None,  # noqa: A002
    weight: Annotated[str | None, typer.Option(help="With --input: the weight's sizes, as 256,256,3,3.")] = None,
    stride: Annotated[str | None, typer.Option(help=f"With --input: {_EACH}; 1 by default.")] = None,
    padding: Annotated[
        str | None,
        typer.Option(help=f"With --input: {_EACH}; or before:after, such as 0:1; or same; or valid; 0 by default."),
    ] = None,
    dilation: Annotated[str | None, typer.Option(help=f"With --input: {_EACH}; 1 by default.")] = None,
    groups: Annotated[int | None, typer.Option(help="With --input: the number of groups; 1 by default.")] = None,
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="Operations fused after it, for example bias+relu.")] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1, or one that is not in this machine: h200; by default the best."),
    ] = None,
    tf32: Tf32 = None,
    mode: ModeOption = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Seconds; by default the mode's. On a CPU, quick takes up to 3 s if calls are long.",
            show_default=False,
        ),
    ] = None,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of PyTorch's own.")] = 2.0,
    objective: ObjectiveOption = Objective.TIME,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="Assume that no input has an infinity or NaN.")] = False,
    trust: Annotated[
        Trust | None,
        typer.Option(
            metavar="WORD",
            help="trust stored findings, or verify them (time them again) first; by default CONVWRIGHT_TRUST.",
        ),
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run candidates in a separate process, since one may crash or hang.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Measure the energy of the best candidates, for 5 s each.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Also list the kernels that each measured candidate launches on a GPU.")
    ] = False,
    top: Top = None,
    refusals: Annotated[
        bool | None,
        typer.Option(
            "--refusals/--no-refusals",
            help="List refusals with reasons. By default on a CPU, refusals for lack of a GPU are only counted.",
        ),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            metavar="ALGORITHM",
            help="Print only why this algorithm cannot be used, for example cudnn/engine-20, with cuDNN's own message.",
        ),
    ] = None,
    tolerate_load: TolerateLoad = False,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Measure all candidates for one problem.

    The table has the time, the physical limit, the errors and the workspace of each candidate, and why it won, lost or
    was refused.
    """

    from convwright.core.kinds.text import parse
    from convwright.core.policy import Policy
    from convwright.naming import check_above_0
    from convwright.settings import Mode

    check_form(as_json=as_json, as_csv=as_csv, as_markdown=as_markdown, top=top)
    if problem is not None and (input is not None or weight is not None):
        raise BadInput("find takes a problem's text or --input and --weight, got both")
    if budget is not None:
        check_above_0("--budget", budget)
    windows = {"--stride": stride, "--padding": padding, "--dilation": dilation}
    if problem is not None:
        _check_alone(problem, windows, groups)
    elif input is None or weight is None:
        raise BadInput("find needs a problem such as mb32ic256ih14oc256kh3ph1, or both --input and --weight")
    else:
        problem = _described(input, weight, windows, groups)
    posed = parse(complete(problem, dt=dtype, tag=layout, dir=direction, ep=epilogue))
    options = {"--budget": budget, "--isolate": isolate, "--energy": energy, "--trust verify": trust is Trust.VERIFY}
    options["--tolerate-load"] = tolerate_load
    wanted = Mode.FULL if mode is None else one_of(Mode, "mode", mode, but=Mode.OFF)
    options[f"--mode {wanted}"] = mode is not None and wanted.measures
    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=objective,
        finite_inputs=finite_inputs,
    )

    # Imported after the options are checked, since PyTorch takes long to import.
    from convwright.api.finding import find as search
    from convwright.api.finding import refuse_ignored, why_nothing_is_measured
    from convwright.measuring.hardware.machine import device_facts
    from convwright.report.tables.findings import findings_data, findings_sheet, print_findings
    from convwright.report.tables.kernels import print_kernels
    from convwright.report.words.output import output
    from convwright.report.words.plain import as_json as strict_json
    from convwright.report.words.progress import progress_bar
    from convwright.wording.conditions_text import conditions_now, permitted_in
    from convwright.wording.progress import doing

    if (nothing := why_nothing_is_measured(device_facts(device), wanted)) is not None:
        refuse_ignored(options, nothing)
    if why is not None:
        choosing = {
            "--max-workspace": max_workspace is not None, "--deterministic": deterministic,
            "--objective": objective != "time", "--finite-inputs": finite_inputs,
        }  # fmt: skip
        refuse_ignored(options | choosing | {"--kernels": kernels}, "--why neither measures nor chooses")
        refuse_ignored({"--csv": as_csv, "--markdown": as_markdown}, "--why prints a sentence, or --json")
        with with_tf32(tf32):
            _print_reason(posed, why, device, as_json=as_json)
        return
    done = stoppable("before the search was done; nothing of it is kept")
    kept = asked_for(path, new=True)
    with with_tf32(tf32), done, kept as store, progress_bar() as bar:
        found = search(
            posed, device=device, mode=wanted, policy=policy, budget_us=None if budget is None else budget * 1e6,
            store=store, trust=trust, isolate=isolate, energy=energy, kernels=kernels, tolerate_load=tolerate_load,
            progress=lambda done, of, what: bar(done, of, doing(what)),
        )  # fmt: skip
    if as_json:
        known = permitted_in([found], conditions_now(found.device))
        print(strict_json(found.to_json() | {"conditions": dict(known)}))
    elif as_csv or as_markdown:
        print_rows(partial(findings_sheet, found), partial(findings_data, found), as_csv=as_csv, top=top)
    else:
        # A pipe has no limit of width. A narrow terminal gets fewer columns.
        print_findings(found, output(), refusals=refusals, top=top)
        if found.kernels is not None:
            print_kernels(found.kernels, output())


def _print_reason(problem: Problem, algorithm: str, device: str | None, *, as_json: bool) -> None:
    from convwright.api.finding import why
    from convwright.report.words.plain import as_json as strict_json

    reason = why(problem, algorithm, device)
    print(strict_json(reason.to_json()) if as_json else reason)


def _check_alone(problem: str, windows: Mapping[str, str | None], groups: int | None) -> None:
    """Refuse options that describe a part of a problem, if its text is given."""
    for option, given in windows.items():
        if given is not None:
            raise BadInput(
                f"{option} belongs to --input and --weight; {_advice(problem, option, given)} in the problem"
            )
    if groups is not None:
        raise BadInput(f"--groups belongs to --input and --weight; write g{groups} in the problem")


def _advice(problem: str, option: str, given: str) -> str:
    """What to do instead of giving an option beside a problem's text."""
    if option == "--padding" and (given in _BY_NAME or ":" in given):
        return "write ph for the padding before, and oh or rh: for the padding after,"
    return f"write {_words(problem, option, _numbers(option, given))}"


def _words(problem: str, option: str, numbers: tuple[int, ...]) -> str:
    """The words of a problem's text for an option, for example sh2. A single number is for all dimensions."""
    letter = option.removeprefix("--")[0]
    alone = "w" if "iw" in problem and "ih" not in problem else "h"
    axes = alone if len(numbers) == 1 else "dhw"[-len(numbers) :]
    # In a problem's text a dilation is the gap between two taps: 0 is dense.
    sizes = [number - 1 for number in numbers] if letter == "d" else numbers
    return "".join(f"{letter}{axis}{size}" for axis, size in zip(axes, sizes, strict=False))


def _described(sizes: str, weight: str, windows: Mapping[str, str | None], groups: int | None) -> str:
    """The text of the problem that the options describe."""
    from convwright.core.problem import ConvProblem

    given = {option: _window(option, text) for option, text in windows.items() if text is not None}
    described = ConvProblem.of(
        _numbers("--input", sizes), _numbers("--weight", weight), groups=1 if groups is None else groups,
        stride=given.get("--stride", 1), padding=given.get("--padding", 0), dilation=given.get("--dilation", 1),
    )  # fmt: skip
    sizes, *words = described.key.split(" ")
    return " ".join([sizes, *(word for word in words if word.startswith(("rd:", "rh:", "rw:")))])


def _window(option: str, text: str) -> Any:
    """The numbers of an option. A padding may also have pairs, or be a name."""
    if option != "--padding" or not (text in _BY_NAME or ":" in text):
        return _numbers(option, text)
    if text in _BY_NAME:
        return text
    pairs = [_numbers(option, part.replace(":", ",")) for part in text.split(",")]
    return tuple(pair if len(pair) > 1 else pair[0] for pair in pairs)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        others = ", pairs such as 0:1, valid or same" if option == "--padding" else ""
        raise BadInput(f"{option} takes numbers separated by commas{others}, got {text!r}") from None
