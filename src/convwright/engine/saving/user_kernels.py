"""Kernels registered by the user in a plan: they must be registered again before loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from convwright.backends import registry
from convwright.backends.user.backend import UserKernels
from convwright.backends.user.kernel import UserKernel
from convwright.engine.planning.assignment import Assignment


def user_kernels(assignment: Assignment) -> dict[str, str]:
    """The versions of the user's kernels that the steps run, by name."""
    leaves = [step.candidate.leaf for step in assignment.steps if step.candidate is not None]
    names = {leaf.algorithm for leaf in leaves if leaf.backend == registry.USER}
    return {kernel.name: kernel.version for kernel in _registered() if kernel.name in names}


def unlike(needed: Mapping[str, str]) -> str | None:
    """The first kernel that is missing or has another version, as a sentence with the remedy; None if all match."""
    there = {kernel.name: kernel.version for kernel in _registered()}
    for name, version in needed.items():
        if name not in there:
            return f"version {version!r} of the kernel {name!r}: register it first, with cw.register_kernel"
        if there[name] != version:
            return f"version {version!r} of the kernel {name!r}, and version {there[name]!r} is registered"
    return None


def _registered() -> Iterator[UserKernel]:
    for kind in registry.kinds():
        member = registry.registered(kind)
        if isinstance(member, UserKernels):
            yield from member.kernels.values()
