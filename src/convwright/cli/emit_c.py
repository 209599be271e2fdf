"""``convwright emit-c``: a convolution of cuDNN's as C, for programs and compilers without Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.cli.problem_text import complete
from convwright.cli.store_path import StorePath, asked_for
from convwright.cli.workspace import MaxWorkspace
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.core.candidate import Candidate
    from convwright.core.policy import Policy
    from convwright.core.problem import ConvProblem
    from convwright.emit.emitted import EmittedC

_EMPTY = "the table is empty: every size goes by cuDNN's heuristic"


def emit_c(
    problem: Annotated[
        str | None,
        typer.Argument(help="The convolution, for example mb32ic256ih14oc256kh3ph1; none with --dynamic."),
    ] = None,
    *,
    algorithm: Annotated[
        str | None,
        typer.Option(help="An algorithm or engine of cuDNN's, such as cudnn/gemm; by default auto, the best known."),
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Take the sizes as arguments: forward, in two dimensions.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROBLEM|SUITE",
            help="With --dynamic: problems to choose algorithms for now. By default those in the store.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the files, and the prefix of all names in them.")] = "conv",
    out: Annotated[Path, typer.Option(help="The folder to write NAME.c and NAME.h into.")] = Path("."),
    dtype: Annotated[str | None, typer.Option(help="fp64, fp32, fp16 or bf16; fp32 by default.")] = None,
    layout: Annotated[str | None, typer.Option(help="nchw or nhwc (channels last); nchw by default.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward, backward_data or backward_weight.")] = None,
    epilogue: Annotated[str | None, typer.Option(help="Operations fused after it, for example bias+relu.")] = None,
    device: Annotated[
        str | None, typer.Option(help="The GPU: cuda, cuda:1, or one that is not in this machine: h200.")
    ] = None,
    tf32: Annotated[
        bool | None,
        typer.Option(
            "--tf32/--no-tf32", help="Whether fp32 may be computed in TF32; by default PyTorch's flag decides."
        ),
    ] = None,
    max_workspace: MaxWorkspace = None,
    deterministic: Annotated[bool, typer.Option(help="Only deterministic candidates.")] = False,
    path: StorePath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write one convolution of cuDNN's as a C file with a small header, or with --dynamic one for any sizes."""
    _check(problem, algorithm, table, direction, dynamic=dynamic)
    asked = None if dynamic else _parsed(problem, dtype, layout, direction, epilogue)

    # What is wrong is said without waiting for PyTorch.
    from convwright.emit.any_sizes import emit_c_dynamic
    from convwright.emit.chosen import AUTO
    from convwright.emit.one import emit_c as emit

    with asked_for(path, reads=True) as store:
        if asked is None:
            emitted = emit_c_dynamic(
                None if table is None else _problems(table, dtype, layout, epilogue),
                dtype=dtype or "fp32", layout=layout or "nchw", epilogue=epilogue or "none", device=device, name=name,
                policy=_policy(dtype or "fp32", tf32, max_workspace, deterministic=deterministic), store=store,
            )  # fmt: skip
        else:
            policy = _policy(asked.dtype, tf32, max_workspace, deterministic=deterministic)
            emitted = emit(asked, algorithm=algorithm or AUTO, device=device, name=name, policy=policy, store=store)
    _say(emitted, emitted.write(out), dynamic=dynamic, as_json=as_json)
    if dynamic and not emitted.chosen and not as_json:
        print(_EMPTY + ("; give --table" if table is None else ""))


def _check(
    problem: str | None, algorithm: str | None, table: Sequence[str] | None, direction: str | None, *, dynamic: bool
) -> None:
    if not dynamic:
        if problem is None:
            raise BadInput("emit-c needs a problem such as mb32ic256ih14oc256kh3ph1, or --dynamic")
        if table is not None:
            raise BadInput("--table is of the sizes that --dynamic chooses for, got no --dynamic")
        return
    for what, given, instead in (
        ("the problem", problem, "--table PROBLEM chooses for its sizes"),
        ("--algorithm", algorithm, "each size of --table has its own"),
        ("--direction", direction, "it is forward"),
    ):
        if given is not None:
            raise BadInput(f"with --dynamic each call gives the sizes: leave out {what} ({instead})")


def _parsed(
    problem: str | None, dtype: str | None, layout: str | None, direction: str | None, epilogue: str | None
) -> ConvProblem:
    from convwright.core.problem import ConvProblem

    return ConvProblem.parse(complete(problem or "", dt=dtype, tag=layout, dir=direction, ep=epilogue))


def _problems(table: Sequence[str], dtype: str | None, layout: str | None, epilogue: str | None) -> list[ConvProblem]:
    """The problems of the table, of the kind that the options say where they say nothing of themselves."""
    from convwright import suites
    from convwright.core.problem import ConvProblem

    kind = {"dt": dtype, "tag": layout, "ep": epilogue}
    rows = [row for each in table for row in suites.asked_for(each).rows]
    return [ConvProblem.parse(_filled_in(row.text, kind)) for row in rows]


def _filled_in(text: str, words: Mapping[str, str | None]) -> str:
    """``text`` with those of ``words`` that it has not. One in another direction fits no table, and keeps its epilogue.

    >>> _filled_in("ic8ih9oc8kh3 dt:fp32", {"dt": "fp16", "tag": "nhwc", "ep": None})
    'ic8ih9oc8kh3 dt:fp32 tag:nhwc'
    """
    said = dict(word.split(":", 1) for word in text.split()[1:])
    if said.get("dir", "forward") != "forward":
        said.setdefault("ep", "none")
    added = [f"{name}:{word}" for name, word in words.items() if word is not None and name not in said]
    return " ".join([text, *added])


def _policy(dtype: str, tf32: bool | None, max_workspace: int | None, *, deterministic: bool) -> Policy:
    from convwright.core.dtype import DType, permitted_arithmetic
    from convwright.core.policy import Policy

    arithmetic = None if tf32 is None else permitted_arithmetic(DType.parse(dtype), tf32=tf32)
    return Policy(max_workspace_bytes=max_workspace, deterministic=deterministic, arithmetic=arithmetic)


def _say(emitted: EmittedC, files: Sequence[Path], *, dynamic: bool, as_json: bool) -> None:
    from convwright.report.words.plain import as_json as strict_json

    if as_json:
        left_out = [{"problem": key, "reason": reason} for key, reason in emitted.left_out]
        data: dict[str, Any] = {"files": [str(path) for path in files], "name": emitted.name}
        chosen = [_row(candidate) for candidate in emitted.chosen]
        print(strict_json(data | ({"table": chosen, "left_out": left_out} if dynamic else chosen[0])))
        return
    print(*files, sep="\n")
    for candidate in emitted.chosen:
        print(f"{candidate.problem.key}: {candidate.id}")
    for key, reason in emitted.left_out:
        print(f"left out: {key}: {reason}")


def _row(candidate: Candidate) -> dict[str, Any]:
    return {
        "problem": candidate.problem.key,
        "candidate": candidate.id,
        "arithmetic": candidate.arithmetic,
        "workspace_bytes": candidate.workspace_bytes,
        "workspace_is_bound": candidate.workspace_is_bound,
        "deterministic": candidate.deterministic,
    }
