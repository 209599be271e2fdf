"""Kernels of the user, which compete with all other candidates once they are registered."""

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
    "resize") in ``find``, ``tune``, ``optimize`` and every call. Its id is ``user/`` and its name. It is timed and
    checked like all candidates. A name that is registered again replaces the earlier kernel.

    ``run`` takes a problem and returns a function that computes it: a function of PyTorch, or one that launches a
    kernel on the current stream. This function gets tensors by the names in ``problem.operands`` and returns the
    result. With ``writes_out`` it also gets the output (``y`` of a forward convolution) and writes to it instead. It
    must not change other operands, and several threads may call it. Without ``run``, use ``register_kernel`` as a
    decorator.

    Args:
        serves: Takes a problem and returns True, False, or a reason why the kernel cannot compute it.
        device: "cpu" or "cuda"; None for both.
        layouts: The layouts that all operands may have ("nchw", "nhwc"); none for any.
        workspace_bytes: A number, or a function of the problem. The function then gets a tensor ``workspace`` of so
            many bytes.
        prepare: Takes a problem and a weight, and returns the ``w`` that the function gets. It runs once if weights are
            constant, as in an engine.
        deterministic: Promises the same bits for the same operands.
        version: Findings count for one version. Change it whenever the kernel changes.

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
    """Remove a kernel of your own. Plans and engines that were made with it stay as they are."""
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
    """Register ``new`` under its name, for any kind."""
    for kind in registry.kinds():
        before = _of_kind(kind)
        after = [kernel for kernel in before if kernel.name != name]
        if new is not None and new.kind == kind:
            after.append(new)
        if len(after) != len(before) or new in after:
            registry.register(kind, UserKernels(after) if after else None)
    answer_anew()
