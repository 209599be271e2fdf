"""``convwright explain``: what would run, and why, by what is known."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convwright.cli.choices import ObjectiveOption
from convwright.cli.output_form import AsCsv, AsMarkdown, Layer, check_form
from convwright.cli.problem_text import DTYPE_HELP as DTYPE
from convwright.cli.problem_text import complete
from convwright.cli.store_path import StorePath, opened
from convwright.cli.tf32 import Tf32, with_tf32
from convwright.cli.workspace import MaxWorkspace
from convwright.core.policy import Objective
from convwright.errors import BadInput
from convwright.settings import Mode, settings

if TYPE_CHECKING:
    from convwright.report.explain import Section

_WIDEST = 110


def explain(
    problem: Annotated[
        str, typer.Argument(help="The problem, for example mb32ic256ih14oc256kh3ph1, or the folder of an engine.")
    ],
    *,
    dtype: Annotated[str | None, typer.Option(help=DTYPE)] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="Operations fused after it, for example bias+relu.")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, cuda:1, or one that is not in this machine: h200. By default the best device here; for "
            "the folder of an engine, the device that the engine was planned for."
        ),
    ] = None,
    max_workspace: MaxWorkspace = None,
    max_error: Annotated[float, typer.Option(help="Largest error allowed, in multiples of PyTorch's own.")] = 2.0,
    objective: ObjectiveOption = Objective.TIME,
    tf32: Tf32 = None,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    finite_inputs: Annotated[bool, typer.Option(help="Assume that no input has an infinity or NaN.")] = False,
    path: StorePath = None,
    layer: Layer = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Say what would run and why, for a problem or a saved engine.

    It also says why nothing else would run, and what is not known. Nothing is measured. --layer, --csv and --markdown
    are for the folder of an engine.
    """
    settings()  # errors in the environment are raised here
    check_form(as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    if Path(problem).is_dir():
        from convwright.cli.steps import print_engine
        from convwright.engine.loaded import load, saved_plan

        plan = saved_plan(problem)
        if plan is not None and device is not None:
            raise BadInput(f"{problem} holds a plan predicted for {plan.facts.label}: leave out --device")
        shown = load(problem, device) if plan is None else plan
        print_engine(shown, layer=layer, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
        return
    for option, given in (("--layer", layer is not None), ("--csv", as_csv), ("--markdown", as_markdown)):
        if given:
            raise BadInput(f"{option} is of the folder of an engine, and {problem!r} is none")

    from convwright.core.kinds.text import parse
    from convwright.core.policy import Policy

    text = complete(problem, dt=dtype, tag=layout, dir=direction, ep=epilogue)
    posed = parse(text)
    policy = Policy(
        max_workspace_bytes=max_workspace,
        max_error=max_error,
        deterministic=deterministic,
        objective=objective,
        finite_inputs=finite_inputs,
    )

    # What is wrong is said without waiting for PyTorch.
    from convwright.measuring.hardware.machine import device_facts
    from convwright.report.explain import explain as sections_of
    from convwright.report.words.origin import Memory
    from convwright.report.words.plain import as_json as strict_json
    from convwright.tuning.find import find
    from convwright.tuning.session import session

    facts = device_facts(device)
    with with_tf32(tf32), nullcontext(session().store) if path is None else opened(path, reads=True) as store:
        found = find(posed, facts, policy, mode=Mode.HEURISTIC, store=store)
        key = found.problem.key
        memory = Memory(store.findings(key, facts.key), store.quarantined(key, facts.key), time.time())
    words = ["convwright", "find", text]
    # On the machine that has the device, it has another name.
    words += ["--device", (device or facts.torch_name or "cuda") if facts.present else "cuda"]
    words += _given("--max-workspace", max_workspace)
    words += _given("--max-error", max_error, 2.0) + _given("--objective", objective, "time")
    words += [] if tf32 is None else ["--tf32" if tf32 else "--no-tf32"]
    words += ["--deterministic"] * deterministic + ["--finite-inputs"] * finite_inputs
    sections = sections_of(found, memory, command=shlex.join(words))
    if as_json:
        data = [{"heading": section.heading, "lines": section.lines} for section in sections]
        print(strict_json(found.to_json() | {"explanation": data}))
    else:
        _print(f"{key} on {facts.label}", sections)


def _given(option: str, value: object, default: object = None) -> list[str]:
    """An option as it would be typed; nothing where it has its default."""
    return [] if value == default else [option, str(value)]


def _print(title: str, sections: Iterable[Section]) -> None:
    from rich.text import Text

    from convwright.report.words.output import output

    console = output()
    console.print(Text(title, style="bold"))
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST) if sys.stdout.isatty() else _WIDEST
    for section in sections:
        console.print(Text(f"\n{section.heading}", style="bold"))
        for line in section.lines:
            console.print(Text(_wrapped(line, width)))


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(
        line, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
