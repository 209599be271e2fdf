"""PyTorch's flag for TF32, as a command was asked to set it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

Tf32 = Annotated[
    bool | None,
    typer.Option(
        "--tf32/--no-tf32", help="Set PyTorch's TF32 flag for fp32 convolutions on a GPU; by default it stays."
    ),
]


def with_tf32(allowed: bool | None) -> AbstractContextManager[None]:
    """The flag set for a block; nothing where nobody asked."""
    if allowed is None:
        return nullcontext()
    from convwright import flags

    return flags.tf32(allowed)
