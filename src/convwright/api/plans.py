"""Plans for repeated calls: on tensors, or for a convolution on addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from reprlib import repr as brief
from typing import Any, overload

import torch
from torch import Tensor

from convwright.api.foreign_arrays import (
    OperandForm,
    address_of,
    check_form,
    check_workspace,
    checked_address,
    look,
    tensor_of,
)
from convwright.api.tensor_plans import TensorPlan, bound_call, check_forms
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.fusing import has_extended_epilogue, rare_operands
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.kinds.text import KINDS, parse
from convwright.core.plan import Launchable, Plan
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import ConvProblem
from convwright.eager.asking.ambient import AUTO
from convwright.eager.running.oom_fallback import short_of
from convwright.eager.running.runner import on_device
from convwright.errors import BadInput, Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tensors import empty, spec_of
from convwright.tuning.asked import permitted
from convwright.tuning.find import find
from convwright.tuning.listing import build, objection
from convwright.tuning.session import session


@overload
def plan(
    problem: ConvProblem,
    *,
    algorithm: str | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    launchable: bool = False,
) -> BoundPlan: ...
@overload
def plan(
    problem: LinearProblem | PointwiseProblem | CopyProblem | PoolProblem | ResizeProblem,
    *,
    algorithm: str | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
) -> TensorPlan: ...
@overload
def plan(
    problem: str,
    *,
    algorithm: str | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    launchable: bool = False,
) -> Any: ...
def plan(
    problem: Problem | str,
    *,
    algorithm: str | None = None,
    device: str | DeviceFacts | None = None,
    policy: Policy | None = None,
    launchable: bool = False,
) -> BoundPlan | TensorPlan:
    """A candidate for ``problem``, ready for repeated calls: ``algorithm``, or the choice ("auto").

    If nothing is known about the problem, it is searched, and kernels are compiled for the search, which may take
    seconds.

    A convolution gives a ``BoundPlan``. A matrix product, an expression, a copy, pooling or a resize gives a
    ``TensorPlan``.

    With ``launchable`` the plan also runs on addresses, by ``launch``. Only convolutions have such plans, and PyTorch's
    own functions, which take only tensors, are left out.

    >>> ready = plan("ic4ih8oc4kh3", device="cpu", algorithm="reference/gemm")
    >>> x, w = torch.ones(1, 4, 8, 8), torch.ones(4, 4, 3, 3)
    >>> ready(x, ready.prepare(w)).sum().item()
    5184.0
    """
    problem = parse(problem) if isinstance(problem, str) else problem
    if getattr(problem, "kind", None) not in KINDS:
        raise BadInput(f"plan takes a problem or its text, got {brief(problem)}")
    check_policy(policy)
    facts, policy = device_facts(device), policy or Policy()
    if not facts.present:
        raise BadInput(f"a plan runs where it is made, and {facts.name} is not in this machine")
    if algorithm is not None and not isinstance(algorithm, str):
        raise BadInput(f"`algorithm` must be an algorithm's id, 'auto' or None, got {brief(algorithm)}")
    if launchable and not isinstance(problem, ConvProblem):
        raise BadInput(f"only plans of convolutions run on addresses, got {problem.key}")
    made = BoundPlan if isinstance(problem, ConvProblem) else TensorPlan
    if algorithm is not None and algorithm != AUTO:
        return made(build(permitted(algorithm, problem, facts, policy), facts), facts)
    if launchable:
        assert isinstance(problem, ConvProblem)
        return _best_launchable(problem, facts, policy)
    return made(session().plan(problem, facts, policy), facts)


def _best_launchable(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> BoundPlan:
    here = session()
    found = find(problem, device, policy, mode=Mode.HEURISTIC if here.mode is Mode.OFF else here.mode, store=here.store)
    for verdict in found.verdicts:
        candidate = verdict.finding.candidate
        # If nothing was measured, any permitted candidate serves.
        if verdict.allowed or (found.choice is None and objection(candidate, found.policy) is None):
            ready = build(candidate, device)
            if isinstance(ready, Launchable):
                return BoundPlan(ready, device)
    raise Refused(f"nothing that is allowed for {problem.key} runs on addresses; `find` says what there is")


class BoundPlan:
    """A call computes without a lookup or a synchronisation, and with ``out`` and ``workspace`` without an allocation.
    It records no gradient. The operands are those of ``problem``: (x, w) forward, (dy, w) backward data, (x, dy)
    backward weight. An operand with other sizes, strides, dtype, device or alignment is refused."""

    def __init__(self, ready: Plan, device: DeviceFacts) -> None:
        self._plan, self._facts, self._device = ready, device, torch.device(str(device.torch_name))
        self._run: Callable[..., Tensor] = on_device(ready, self._device)
        self._launch = on_device(ready.launch, self._device) if isinstance(ready, Launchable) else None
        self._is_rare = has_extended_epilogue(self.problem)
        self._is_cast = self.candidate.leaf.backend == "torch"  # autocast changes the operands of these
        self._adds_bias, self._adds_residual = (role in self.problem.operands for role in (Role.BIAS, Role.RESIDUAL))
        self._forms = {role: OperandForm.posed(spec) for role, spec in self.problem.operands.items()}
        self._knows_packed = Role.W not in self._forms
        self._fitting: tuple[object, ...] = ()

    def __repr__(self) -> str:
        return f"<BoundPlan: {self.candidate.id} for {self.problem.key} on {self._device}>"

    @property
    def candidate(self) -> Candidate:
        return self._plan.candidate

    @property
    def problem(self) -> ConvProblem:
        posed: ConvProblem = self.candidate.problem
        return posed

    @property
    def workspace_bytes(self) -> int:
        """The workspace of a call in bytes. A given workspace must be aligned to 256 bytes."""
        return self._plan.workspace_bytes

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight in the form that the candidate needs; the weight itself if it needs no other."""
        if Role.W not in self.problem.operands:
            return self._plan.prepare(weight)
        packed = self._plan.prepare(self._laid(weight))
        self._forms[Role.W], self._knows_packed = OperandForm.packed(packed), True
        return packed

    def _laid(self, weight: Tensor) -> Tensor:
        """A weight that lies anyhow, as the problem says."""
        posed = self.problem.w
        check_form(weight, OperandForm.posed(posed)._replace(strides=None, alignment=1), Role.W, self._device)
        if spec_of(weight).strides == posed.strides and weight.data_ptr() % posed.alignment == 0:
            return weight
        return empty(posed, weight.device).copy_(weight)

    def bind(self, *, workspace: Tensor | None = None, **operands: Tensor) -> Callable[[], Tensor]:
        """A call without arguments on these operands, by name: ``x``, ``w``, ``bias``, ``y`` for the output, …. Their
        values may change between calls, except for the weight, which is packed here: bind again if it changes.

        >>> ready = plan("ic4ih8oc4kh3", device="cpu", algorithm="reference/gemm")
        >>> call = ready.bind(x=torch.ones(1, 4, 8, 8), w=torch.ones(4, 4, 3, 3))
        >>> call().sum().item()
        5184.0
        """
        if Role.W in operands and Role.W in self.problem.operands:
            operands[Role.W] = self._laid(operands[Role.W])
        check_forms(self.problem, operands, self._device)
        if self.problem.epilogue.accumulate and self.problem.outputs[-1] not in operands:
            raise BadInput(f"a problem that accumulates adds to `{self.problem.outputs[-1]}`, which is missing")
        return bound_call(self._plan, self._facts, operands, workspace)

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        **rare: Tensor,
    ) -> Tensor:
        """Some epilogues take ``scale=``, ``z=`` (the input of the activation) and ``db=`` (the output for the bias's
        gradient). A problem that accumulates adds to ``out``."""
        looks = tuple(None if given is None else look(given) for given in (first, second, bias, residual, out))
        if looks != self._fitting:
            self._check(first, second, bias, residual, out)
            self._fitting = looks
        if workspace is not None:
            check_workspace(workspace, self.workspace_bytes, self._device)
        if rare or self._is_rare or (bias is None) is self._adds_bias or (residual is None) is self._adds_residual:
            return self._rarely((first, second, bias, residual, out, workspace), rare)
        try:
            if (
                first.requires_grad or second.requires_grad
                or (bias is not None and bias.requires_grad) or (residual is not None and residual.requires_grad)
                or (self._is_cast and torch.is_autocast_enabled(self._device.type))
            ):  # fmt: skip
                with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
                    return self._run(first, second, bias, residual, out, workspace)
            return self._run(first, second, bias, residual, out, workspace)
        except SHORTAGES as error:
            if workspace is not None or not is_shortage(error):
                raise
            raise short_of(self.candidate, self._facts, self.workspace_bytes, error) from error

    def _check(self, first: Tensor, second: Tensor, bias: Tensor | None, residual: Tensor | None, out: Any) -> None:
        if not self._knows_packed:
            self.prepare(empty(self.problem.w, self._device))  # has the layout of a packed weight
        roles = (*self.problem.direction.operands, Role.BIAS, Role.RESIDUAL, self.problem.direction.output)
        for role, given in zip(roles, (first, second, bias, residual, out), strict=True):
            if given is None and role in self.problem.direction.operands:
                raise BadInput(f"`{role}` is missing, got None")
            if given is not None and role in self._forms:
                check_form(given, self._forms[role], role, self._device)

    def _rarely(self, given: tuple[Tensor | None, ...], rare: Mapping[str, Tensor]) -> Tensor:
        _, _, bias, residual, out, _ = given
        added = {Role.BIAS: bias, Role.RESIDUAL: residual}
        named = {*rare, *(role for role, tensor in added.items() if tensor is not None)}
        wanted = {*rare_operands(self.problem), *(role for role in added if role in self.problem.operands)}
        if named != wanted:
            raise BadInput(f"{self.problem.key} takes {_listed(wanted)} beside its two operands, got {_listed(named)}")
        if self.problem.epilogue.accumulate and out is None:
            raise BadInput(f"a problem that accumulates adds to `out`, which is missing: {self.problem.key}")
        for role, operand in rare.items():
            check_form(operand, self._forms[Role(role)], role, self._device)
        # Any result of PyTorch serves as ``z``.
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
            return self._run(*given, **rare)

    def launch(
        self,
        first: Any,
        second: Any,
        bias: Any,
        out: Any,
        stream: int = 0,
        *,
        residual: Any = None,
        workspace: Any = None,
    ) -> None:
        """The same on addresses, on the CUDA stream at the address ``stream`` (0 is the default stream).

        An operand is an address (an int), None if it is absent, or an array of any library with DLPack or
        ``__cuda_array_interface__``. Arrays are checked; addresses cannot be. Pass a weight through ``prepare`` first.
        Nothing is allocated: if the candidate needs a workspace, pass it.
        """
        if self._launch is None:
            raise Refused(
                f"{self.candidate.id} takes tensors, not addresses; plan(…, launchable=True) finds one that does"
            )
        if type(first) is int and type(second) is int and type(out) is int:
            addresses = first, second, address_of(bias), address_of(residual), out, address_of(workspace)
        else:
            addresses = self._checked(first, second, bias, residual, out, workspace)
        self._launch(*addresses, stream)

    def _checked(
        self, first: Any, second: Any, bias: Any, residual: Any, out: Any, workspace: Any
    ) -> tuple[int, int, int, int, int, int]:
        direction, roles = self.problem.direction, self.problem.direction.operands
        given = dict(zip(roles, (first, second), strict=True)) | {
            Role.BIAS: bias, Role.RESIDUAL: residual, direction.output: out,
        }  # fmt: skip
        missing = [role.value for role, array in given.items() if array is None and role in self._forms]
        if missing:
            raise BadInput(f"{self.problem.key} needs {_listed(missing)}, got None")
        at = {
            role: checked_address(array, self._forms[role], role, self._device)
            for role, array in given.items()
            if role in self._forms
        }
        if workspace is not None and type(workspace) is not int:
            check_workspace(tensor_of(workspace), self.workspace_bytes, self._device)
        return (
            at[roles[0]], at[roles[1]], at.get(Role.BIAS, 0), at.get(Role.RESIDUAL, 0), at[direction.output],
            address_of(workspace),
        )  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(f"`{name}`" for name in names)) or "none"
