"""The user's limits and objective."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from convwright.core.dtype import Arithmetic
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import is_above_0, is_whole, one_of

DEFAULT_WORKSPACE_BYTES = 1 << 30


class Weights(StrEnum):
    """Whether a packed weight may be kept: training changes weights between calls, inference does not."""

    CHANGING = "changing"
    CONSTANT = "constant"


class Objective(StrEnum):
    """The quantity to minimise: device time, energy of a call, workspace, or workspace among tied times.

    ``time`` and ``device-time`` rank alike, but in eager calls ``time`` also counts additional host time.
    """

    TIME = "time"
    DEVICE_TIME = "device-time"
    ENERGY = "energy"
    WORKSPACE = "workspace"
    TIME_THEN_WORKSPACE = "time-then-workspace"


@dataclass(frozen=True, slots=True)
class Policy(Record):
    """Limits and objective. The default allows exactly what PyTorch's flags allow at the call.

    ``max_workspace_bytes``: None means the smaller of 1 GiB and a tenth of the free memory. ``max_error`` is a multiple
    of PyTorch's own error. ``arithmetic``: None means what PyTorch's flags permit. ``finite_inputs=True`` says that no
    input holds an infinity or NaN, which FFT and Winograd would spread.
    """

    max_workspace_bytes: int | None = None
    max_error: float = 2.0
    deterministic: bool = False
    arithmetic: frozenset[Arithmetic] | None = None
    weights: Weights = Weights.CHANGING
    objective: Objective = Objective.TIME
    finite_inputs: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_workspace_bytes", _bytes_of(self.max_workspace_bytes))
        if not is_above_0(self.max_error):
            raise BadInput(f"`max_error` must be positive (multiples of PyTorch's error), got {self.max_error!r}")
        if not isinstance(self.max_error, int):
            object.__setattr__(self, "max_error", float(self.max_error))
        for name in ("deterministic", "finite_inputs"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"`{name}` must be True or False, got {getattr(self, name)!r}")
        object.__setattr__(self, "arithmetic", _arithmetic_of(self.arithmetic))
        object.__setattr__(self, "weights", one_of(Weights, "`weights`", self.weights))
        object.__setattr__(self, "objective", one_of(Objective, "`objective`", self.objective))

    @property
    def by_time(self) -> Policy:
        """The same with objective time instead of energy, which takes too long to measure for many candidates."""
        return replace(self, objective=Objective.TIME) if self.objective is Objective.ENERGY else self

    @property
    def allowed_workspace_bytes(self) -> int:
        """``max_workspace_bytes``, or its default."""
        return DEFAULT_WORKSPACE_BYTES if self.max_workspace_bytes is None else self.max_workspace_bytes

    def objection(
        self,
        *,
        workspace_bytes: int | None,
        arithmetic: Arithmetic,
        deterministic: bool | None,
        workspace_is_bound: bool = False,
    ) -> str | None:
        """Why a candidate with these properties is not allowed; None if it is."""
        limit = self.allowed_workspace_bytes
        if workspace_bytes is not None and workspace_bytes > limit:
            verb = "may need" if workspace_is_bound else "needs"
            return f"{verb} {workspace_bytes:,} bytes of workspace, {limit:,} are allowed"
        if self.arithmetic is not None and arithmetic not in self.arithmetic:
            return f"computes in {arithmetic}, allowed are {', '.join(sorted(self.arithmetic))}"
        if self.deterministic and not deterministic:
            return "is not known to be deterministic" if deterministic is None else "is not deterministic"
        return None


def check_policy(given: object) -> None:
    """Refuse anything but a policy or None."""
    if given is not None and not isinstance(given, Policy):
        raise BadInput(f"`policy` must be a Policy or None, got {given!r}")


def _bytes_of(given: int | None) -> int | None:
    """The limit as a Python int: JSON and the store accept no NumPy numbers."""
    if given is None:
        return None
    if not (is_whole(given) and given >= 0):
        raise BadInput(f"`max_workspace_bytes` must be a whole number that is not negative, or None, got {given!r}")
    return int(given)


def _arithmetic_of(given: Iterable[Arithmetic] | None) -> frozenset[Arithmetic] | None:
    """The members given, or named as words; a bare str is refused, since it would be read as its letters."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadInput(f"`arithmetic` must be a set of {', '.join(Arithmetic)}, or None, got {given!r}")
    members = frozenset(one_of(Arithmetic, "each of `arithmetic`", each) for each in given)
    if not members:
        raise BadInput("`arithmetic` must name at least one; give None to allow what PyTorch's flags allow")
    return members
