"""Kernels of the user's own, which compete with all others from then on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from reprlib import repr as brief
from typing import Any

from torch import Tensor

from convwright.backends import registry
from convwright.backends.user.backend import UserKernels
from convwright.backends.user.kernel import Compute, UserKernel
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.naming import check_not_below_0, is_whole, one_of
from convwright.tuning.session import answer_anew
from convwright.uncompiled import uncompiled

_DEVICES = ("cpu", "cuda")


@uncompiled()
def register_kernel(
    name: str,
    run: Callable[[Any], Compute] | None = None,
    *,
    kind: str,
    serves: Callable[[Any], bool | str],
    version: str,
    device: str | None = None,
    layouts: str | Iterable[str] = (),
    writes_out: bool = False,
    workspace_bytes: int | Callable[[Any], int] = 0,
    prepare: Callable[[Any, Tensor], Tensor] | None = None,
    deterministic: bool = False,
) -> Any:
    """Let a kernel of your own compete for problems of a ``kind`` ("conv", "linear", "pointwise", "copy", "pool",
    "resize") in ``find``, ``tune``, ``optimize`` and every call, as ``user/`` and its name. It is timed and checked as
    all candidates are. A name that is registered again is replaced.

    ``run`` is given a problem and returns a function that computes it: a function of PyTorch's, or one that launches a
    kernel on the current stream. That is called with tensors by the names that ``problem.operands`` has. It returns the
    result; with ``writes_out`` it writes to the output instead, which is among them (``y`` of a forward convolution).
    It must not change other operands, and several threads may call it. Without ``run`` this is a decorator.

    ``serves`` says of a problem whether the kernel computes it: True, False, or a reason why not. ``device`` is "cpu"
    or "cuda", None for both; ``layouts`` are those in which all operands may lie ("nchw", "nhwc"), none for any.
    With ``workspace_bytes``, a number or a function of the problem, the function gets a tensor ``workspace`` of so many
    bytes. ``prepare`` is given a problem and a weight and returns what the function gets as ``w``; where weights stay,
    as in an engine, that is done once. ``deterministic`` promises the same bits from the same operands. Findings count
    for one ``version``: change it whenever the kernel changes.

    >>> from convwright.api.finding import find
    >>> def serves(problem):
    ...     return str(problem.expression) == "8 * a"
    >>> @register_kernel("eight-times", kind="pointwise", serves=serves, version="1")
    ... def eight_times(problem):
    ...     return lambda a: a * 8
    >>> found = find('pointwise "8 * a" 1000', device="cpu", mode="heuristic")
    >>> "user/eight-times" in [verdict.finding.candidate.id for verdict in found.verdicts]
    True
    >>> unregister_kernel("eight-times")
    """
    if run is None:
        return lambda run: register_kernel(
            name, run, kind=kind, serves=serves, version=version, device=device, layouts=layouts,
            writes_out=writes_out, workspace_bytes=workspace_bytes, prepare=prepare, deterministic=deterministic,
        )  # fmt: skip
    _check_name(name)
    if kind not in registry.kinds():
        raise BadInput(f"`kind` must be one of {', '.join(registry.kinds())}, got {kind!r}")
    if not isinstance(version, str) or not version:
        raise BadInput(f"`version` must be a text that is not empty, got {version!r}")
    if device not in (None, *_DEVICES):
        raise BadInput(f"`device` must be {', '.join(_DEVICES)} or None, got {device!r}")
    for word, function in (("run", run), ("serves", serves), ("prepare", prepare)):
        if not callable(function) and not (word == "prepare" and function is None):
            raise BadInput(f"`{word}` must be a function of a problem, got {brief(function)}")
    if not callable(workspace_bytes):
        check_not_below_0("`workspace_bytes`", workspace_bytes)
        if not is_whole(workspace_bytes):
            raise BadInput(f"`workspace_bytes` must be a whole number or a function, got {workspace_bytes!r}")
    lying = (layouts,) if isinstance(layouts, str) else layouts
    kernel = UserKernel(
        name, kind, version, run, serves, device,
        tuple(one_of(Layout, "layouts", layout, but=Layout.STRIDED) for layout in lying),
        writes_out, workspace_bytes, deterministic, prepare,
    )  # fmt: skip
    _put(name, kernel)
    return run


def unregister_kernel(name: str) -> None:
    """Take a kernel of your own away. Plans and engines that were made with it stay as they are."""
    if not any(kernel.name == name for kernel in _kernels()):
        there = ", ".join(sorted(kernel.name for kernel in _kernels())) or "none"
        raise BadInput(f"no kernel is registered as {name!r}; there are {there}")
    _put(name, None)


def _check_name(name: str) -> None:
    # The id of a candidate contains the name, so the name must not contain the brackets and commas of an id.
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise BadInput(f"`name` must be letters, digits, '-', '_' and '.', a letter or digit first, got {name!r}")


def _kernels() -> Iterator[UserKernel]:
    for kind in registry.kinds():
        yield from _of_kind(kind)


def _of_kind(kind: str) -> tuple[UserKernel, ...]:
    member = registry.registered(kind)
    return tuple(member.kernels.values()) if isinstance(member, UserKernels) else ()


def _put(name: str, new: UserKernel | None) -> None:
    """Let ``new`` be the kernel of that name, of any kind."""
    for kind in registry.kinds():
        before = _of_kind(kind)
        after = [kernel for kernel in before if kernel.name != name]
        if new is not None and new.kind == kind:
            after.append(new)
        if len(after) != len(before) or new in after:
            registry.register(kind, UserKernels(after) if after else None)
    answer_anew()
