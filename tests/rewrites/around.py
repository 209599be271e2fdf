"""Rewrites put around ``reference/gemm``, and the check that nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from convwright.backends.reference.backend import Reference
from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.candidate import Candidate, Config, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.fusing import rare_operands
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.data import operands as data
from convwright.measuring.checking.of_kind import whole_reference
from convwright.measuring.checking.reference import Reference as Reference64
from convwright.rewrites import REWRITES, rewrite, wrap_plan
from convwright.rewrites.as_copies import Copies, as_copies
from convwright.rewrites.copies import Steps
from convwright.tensors import empty, spoil_
from problem_space import operands, oracle, run, tensor

CPU = DeviceFacts("this CPU", "cpu", "any", "cpu")
GUARD_BYTES = 512
Step = tuple[str, Config]


def offered(problem: ConvProblem) -> list[Step]:
    """Each rewrite with each of its arguments."""
    return [
        (each.name, arguments)
        for each in REWRITES
        if each.kind == problem.kind
        for arguments in each.arguments(problem, CPU)
        if not isinstance(arguments, Refusal)
    ]


def refused(name: str, problem: ConvProblem) -> list[Refusal]:
    return [each for each in rewrite(name).arguments(problem, CPU) if isinstance(each, Refusal)]


def arguments_of(name: str, problem: ConvProblem) -> list[Config]:
    return [each for each in rewrite(name).arguments(problem, CPU) if not isinstance(each, Refusal)]


def chains(problem: ConvProblem, depth: int) -> list[tuple[Step, ...]]:
    if depth == 0:
        return [()]
    return [
        (step, *rest)
        for step in offered(problem)
        for rest in chains(rewrite(step[0]).inner(problem, step[1]), depth - 1)
    ]


def wrapped(problem: ConvProblem, steps: tuple[Step, ...]) -> Candidate:
    if not steps:
        offers = Reference().candidates(problem, CPU, Policy())
        return next(each for each in offers if isinstance(each, Candidate) and each.algorithm == "gemm")
    (name, arguments), *rest = steps
    inner = wrapped(rewrite(name).inner(problem, arguments), tuple(rest))
    return rewrite(name).wrap(problem, arguments, inner)


def planned(candidate: Candidate) -> Plan:
    plan = wrap_plan(candidate, lambda leaf: Reference().build(leaf, CPU))
    assert plan.candidate is candidate
    assert plan.workspace_bytes == candidate.workspace_bytes
    return plan


def moved(steps: Steps, tensor: Tensor, target: TensorSpec) -> Tensor:
    """What the copies make of a tensor, each by its float64 reference, into memory full of NaN."""
    for copy in steps:
        x, y = copy.problem.x, copy.problem.y
        view = tensor.as_strided(x.shape, x.strides, tensor.storage_offset() + copy.start)
        tensor = spoil_(empty(target if copy is steps[-1] else y, "cpu"))
        tensor.as_strided(y.shape, y.strides).copy_(whole_reference(copy.problem, {"x": view}).y64)
    return tensor


def by_copies(copies: Copies, given: dict[Role, Tensor]) -> Tensor:
    """The copies and the inner problem, each by its own float64 reference."""
    inner: ConvProblem = copies.inner.problem
    inside = {role: moved(copies.before.get(role, ()), each, inner.operands[role]) for role, each in given.items()}
    result = empty(inner.output, "cpu").copy_(Reference64.of(inner, inside).y64)
    return moved(copies.after, result, copies.problem.output)


def check_copies(problem: ConvProblem, steps: Iterable[Step]) -> None:
    """Each rewrite, computed as copies around its inner problem, gives what the problem gives."""
    # In fp64 nothing that is copied is rounded.
    problem = ConvProblem.parse(problem.key.replace(f"dt:{problem.dtype}", "dt:fp64"))
    given = data(problem, Kind.NORMAL, "cpu")
    right = Reference64.of(problem, given).y64
    for step in steps:
        copies = as_copies(wrapped(problem, (step,)))
        assert copies is not None, step
        assert by_copies(copies, given).allclose(right), step


def check_identity(problem: ConvProblem, chosen: Iterable[tuple[Step, ...]], seed: int = 0) -> None:
    """Each chain of rewrites gives PyTorch's result in float64, bit for bit, into memory full of NaN."""
    given = operands(problem, seed)
    expected = oracle(problem, given)
    for steps in chosen:
        plan = planned(wrapped(problem, steps))
        assert torch.equal(run(plan, given).double(), expected), plan.candidate.id
        assert torch.equal(run(plan, given, own_workspace=True).double(), expected), plan.candidate.id
        check_workspace(plan, given, expected)


def around_torch(problem: ConvProblem, step: Step) -> Plan:
    """A rewrite around PyTorch's own call, which makes an output of its own."""
    name, arguments = step
    leaf = torch_candidate(rewrite(name).inner(problem, arguments), cpu=True)
    return wrap_plan(rewrite(name).wrap(problem, arguments, leaf), TorchPlan)


def check_workspace(plan: Plan, given: dict[Role, Tensor], expected: Tensor) -> None:
    """A second call, in memory that holds what the first left, allocates nothing and writes to nothing behind it."""
    problem = plan.candidate.problem
    memory = torch.full((plan.workspace_bytes + GUARD_BYTES,), 0xFF, dtype=torch.uint8)
    first, second = (given[role] for role in problem.direction.operands)
    if Role.W in given:
        second = plan.prepare(second)
    out = tensor(problem.output)
    extras = given.get(Role.BIAS), given.get(Role.RESIDUAL)
    rare = {str(role): given[role] for role in rare_operands(problem)}
    for _ in range(2):
        if Role.BEFORE in given:
            out.copy_(given[Role.BEFORE])
        with Allocations() as made:
            plan(first, second, *extras, out, memory[: plan.workspace_bytes], **rare)
        assert not made.by, f"{plan.candidate.id} allocates: {made.by}"
    assert torch.equal(out.double(), expected), plan.candidate.id
    assert (memory[plan.workspace_bytes :] == 0xFF).all(), f"{plan.candidate.id} writes behind its workspace"


class Allocations(TorchDispatchMode):
    """The operations whose results lie in memory that none of their operands has."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {_storage(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor) and each.untyped_storage().nbytes()]
        if any(_storage(each) not in known for each in made):
            self.by.append(str(func))
        return result


def _storage(each: Tensor) -> int:
    return each.untyped_storage()._cdata
