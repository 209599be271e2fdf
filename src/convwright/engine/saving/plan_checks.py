"""Check that an assignment from a file can run.

Kernels trust an assignment: they read and write the bytes that it names. Everything that they trust is checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from convwright.core.tensor_spec import Layout, same_order
from convwright.engine.export.foreign import compute, devices, on_device
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.lifetimes import WORKSPACE
from convwright.errors import BadInput
from convwright.graph.operations import NO_PROBLEM, NOTHING_RUNS, Foreign, Join, Part, View
from convwright.tensors import core_dtype, empty

# A size in bytes above all possible memory; larger sizes could overflow 64 bits.
_MOST_BYTES = 1 << 48


def check_assignment(assignment: Assignment, device: str) -> None:
    """Raise an error that says what is wrong; ``device`` is "cpu" or "cuda"."""
    for sentence in _wrong(assignment, device):
        raise BadInput(sentence)


def _wrong(plan: Assignment, device: str) -> Iterator[str]:
    yield from _wrong_names(plan)
    yield from _wrong_sizes(plan)
    yield from _wrong_slices(plan)
    there = {*plan.inputs, *plan.constants}
    for step in plan.steps:
        yield from _wrong_step(step, plan, there)
        if isinstance(step.operation, Foreign):
            yield from _wrong_call(step.name, step.operation, device)
        there.update(step.writes)
    if late := [name for name in plan.outputs if name not in there or name in plan.slices]:
        yield f"no step computes the output {late[0]!r}"


def _wrong_names(plan: Assignment) -> Iterator[str]:
    written = [name for step in plan.steps for name in step.writes]
    made = [*plan.inputs, *plan.constants, *written]
    if twice := [name for name, times in Counter(made).items() if times > 1]:
        yield f"{twice[0]!r} is made twice"
    if unknown := [name for name in (*plan.inputs, *written) if name not in plan.tensors]:
        yield f"the tensor {unknown[0]!r} is not described"
    everything = [*plan.tensors, *plan.constants, *plan.wholes]
    if len(set(everything)) < len(everything) or any(name.startswith(WORKSPACE) for name in everything):
        yield "two tensors have the same name"
    if unwritten := [name for name in plan.slices if name not in written]:
        yield f"no step writes {unwritten[0]!r}"


def _wrong_sizes(plan: Assignment) -> Iterator[str]:
    total = 0
    for name, spec in (*plan.tensors.items(), *plan.constants.items(), *plan.wholes.items()):
        if any(stride < 0 for stride in spec.strides):
            yield f"{name!r} has a negative stride"
        total += max(spec.span_bytes, spec.nbytes)
        if total > _MOST_BYTES:
            yield f"no memory can hold all tensors up to {name!r}"


def _wrong_slices(plan: Assignment) -> Iterator[str]:
    for name, (whole, start) in plan.slices.items():
        spec, held = plan.tensors.get(name), plan.wholes.get(whole)
        if spec is None or held is None or spec.dtype is not held.dtype:
            yield f"{name!r} lies in {whole!r}, which is not described"
        elif not 0 <= start <= start + spec.span_bytes <= held.span_bytes or start % spec.dtype.nbytes:
            yield f"{name!r} does not lie in {whole!r}"


def _wrong_step(step: Step, plan: Assignment, there: set[str]) -> Iterator[str]:
    operation = step.operation
    roles = {str(role): spec for role, spec in operation.operands.items()}
    outputs = [str(role) for role in operation.outputs]
    reads = [role for role, _ in step.reads]
    if sorted(reads) != sorted(set(roles).difference(outputs)) or len(step.writes) != len(outputs):
        yield f"{step.name} does not read and write what {operation.key[:200]} does"
        return
    if (step.candidate is None) is not isinstance(operation, NO_PROBLEM):
        yield f"{step.name} has no candidate, or one that computes nothing"
    if late := [name for _, name in step.reads if name not in there]:
        yield f"{step.name} reads {late[0]!r}, which no step before it writes"
        return
    for role, name in (*step.reads, *zip(outputs, step.writes, strict=True)):
        wanted, held = roles[role], plan.constants.get(name) or plan.tensors[name]
        # A constant is copied to the needed layout. Views and joined parts are checked below.
        is_laid = (name in plan.constants and step.candidate is not None) or isinstance(operation, NOTHING_RUNS)
        if (wanted.shape, wanted.dtype) != (held.shape, held.dtype) or not (is_laid or wanted.strides == held.strides):
            yield f"`{role}` of {step.name} does not match the layout of {name!r}"
        if step.candidate is not None and name in plan.slices and plan.slices[name][1] % wanted.alignment:
            yield f"`{role}` of {step.name} is not aligned"
    if isinstance(operation, Foreign | View) and plan.slices.keys() & {*step.writes}:
        yield f"{step.name} cannot write to a slice"
    if isinstance(operation, View):
        names = [name for name in (step.writes[0], step.reads[0][1]) if name in plan.tensors]
        if any(plan.tensors[name].layout is not Layout.NCHW or name in plan.slices for name in names):
            yield f"{step.name} is a view of a tensor that is not dense"
    if isinstance(operation, Join):
        yield from _wrong_join(step, operation, plan)
    if isinstance(operation, Part):
        yield from _wrong_part(step, operation, plan)


def _wrong_join(step: Step, operation: Join, plan: Assignment) -> Iterator[str]:
    """Nothing runs, so each part must lie in its place in the whole."""
    (written,) = step.writes
    whole = plan.slices.get(written)
    lies = plan.tensors[written]
    step_bytes = lies.strides[operation.dim] * lies.dtype.nbytes
    by_role = dict(step.reads)
    for place, start in enumerate(operation.starts):
        part = by_role[f"x{place}"]
        if whole is None or plan.slices.get(part) != (whole[0], whole[1] + start * step_bytes):
            yield f"{part!r} does not lie in the place that {step.name} gives it"
            return
        held = plan.tensors[part]
        if not same_order(held.shape, held.strides, lies.strides):
            yield f"{part!r} does not have the layout that {step.name} gives it"


def _wrong_part(step: Step, operation: Part, plan: Assignment) -> Iterator[str]:
    """Nothing runs, so the part must lie in the memory of its whole."""
    ((_, whole),), (part,) = step.reads, step.writes
    if whole not in plan.slices:
        yield f"{whole!r} has no memory of which {step.name} could be a part"
        return
    (buffer, begin), lies, held = plan.slices[whole], plan.tensors[whole], plan.tensors[part]
    start = begin + operation.start * lies.strides[operation.dim] * lies.dtype.nbytes
    if plan.slices.get(part) != (buffer, start) or not same_order(held.shape, held.strides, lies.strides):
        yield f"{part!r} does not lie in {whole!r} as {step.name} has it"


def _wrong_call(name: str, operation: Foreign, device: str) -> Iterator[str]:
    """Try PyTorch's operator on tensors without memory."""
    if any(torch.device(word).type != device for word in devices(operation)):
        yield f"{name} computes on another device"
        return
    made = compute(on_device(operation, "meta"), [empty(spec, "meta") for spec in operation.inputs])
    forms = [(tuple(each.shape), core_dtype(each.dtype)) for each in made]
    if forms != [(spec.shape, spec.dtype) for spec in operation.results]:
        yield f"{operation.target} does not give what {name} is"
