"""``convwright predict``: what a network should take on a device, which need not be in this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from convwright.cli.advise import TARGET
from convwright.cli.predict_model import names_model, run_model
from convwright.errors import BadInput


def predict(
    target: Annotated[str, typer.Argument(help=TARGET, show_default=False)],
    *,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, or one that is not in this machine: h200. The example's by default."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="The batch size, in place of the example's.", show_default=False)
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Cast the model and its example to fp16, bf16 or fp32 first.", show_default=False)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="fp16, bf16 or tf32 for all layers. Inputs and outputs keep their types.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What each layer of a network should take on a device, and one run of all, with intervals. Nothing runs.

    The network is planned as `convwright optimize --plan-only` plans it. Findings of the device in the store count;
    all else is predicted. In JSON, null is what cannot be predicted.
    """
    if not names_model(target):
        raise BadInput(f"predict takes module:function or path/to/file.py:function, got {target!r}")
    run_model(target, device=device, batch=batch, dtype=dtype, precision=precision, as_json=as_json)
