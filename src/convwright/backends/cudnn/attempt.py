"""One algorithm of cuDNN, requested by name even if cuDNN does not propose it: its workspace, or the reason for a
refusal."""

from __future__ import annotations

from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.engine import configured, execution_plan, workspace_bytes
from convwright.backends.cudnn.graph.problem import operation_graph
from convwright.backends.cudnn.names import engine_named
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.problem import ConvProblem

_TF32 = "[math=tf32]"


def can_be_asked(algorithm: str, device: DeviceFacts) -> bool:
    """Whether cuDNN itself can answer for ``algorithm``: for engines on any device, for others only on a present
    device."""
    if engine_named(f"cudnn/{algorithm}") is not None:
        return True
    family = algorithm.removesuffix(_TF32)
    known = {each.name for family in classic.FAMILIES.values() for each in family.algorithms}
    return device.kind == "cuda" and device.present and family in known


def attempt(problem: ConvProblem, algorithm: str, device: DeviceFacts) -> int:
    """The workspace in bytes that ``algorithm`` needs. Raises with the reason if it cannot compute the problem."""
    engine = engine_named(f"cudnn/{algorithm}")
    if engine is None:
        return _classic(problem, algorithm, device)
    where = graph.target_of(device)
    config = configured(operation_graph(problem, where), where, *graph.numbers(*engine)).config
    return workspace_bytes(execution_plan(config, where))


def _classic(problem: ConvProblem, algorithm: str, device: DeviceFacts) -> int:
    tf32 = algorithm.endswith(_TF32)
    candidate = Candidate(
        problem,
        "cudnn",
        algorithm.removesuffix(_TF32),
        (("math", "tf32"),) if tf32 else (),
        native_arithmetic(problem.dtype, tf32=tf32),
        workspace_bytes=None,
        deterministic=None,
        source=Source.PLANNER,
    )
    return classic.build(candidate, device).workspace_bytes
