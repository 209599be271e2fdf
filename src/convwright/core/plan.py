"""Plans, which run candidates, and backends, which make them: protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy

if TYPE_CHECKING:
    from torch import Tensor


class Plan(Protocol):
    """Runs one candidate. A call does no lookup and no synchronisation.

    The first two operands are multiplied: (x, w) forward, (dy, w) backward data, (x, dy) backward weight. A weight must
    go through ``prepare`` first. With ``out=`` and ``workspace=`` (at least ``workspace_bytes`` of uint8, aligned to
    256 bytes) a call allocates nothing, unless ``writes_out`` is False: then the candidate is a call of PyTorch that
    allocates its output, which is copied.

    Operands of extended epilogues are given by name, to plans for problems that have them: ``scale=``, ``z=``, the
    input of the activation, and ``db=``, where the bias's gradient is written. A problem that accumulates adds to
    ``out=``, which must be given.
    """

    candidate: Candidate
    workspace_bytes: int
    writes_out: bool

    def prepare(self, weight: Tensor) -> Tensor:
        """Pack a weight for the kernel; returns the weight itself if nothing is to be done."""

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor: ...


@runtime_checkable
class Launchable(Protocol):
    """A plan that can also run on raw addresses (0 for a missing operand) and a stream's address."""

    def launch(
        self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int
    ) -> None: ...


class Backend(Protocol):
    """A library or method that computes problems of one kind. Backends know neither each other nor the tuner."""

    name: str

    def fingerprint(self, device: DeviceFacts) -> str:
        """Old findings count only if this text is unchanged."""

    def candidates(self, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """Every way in which this backend can compute ``problem`` on ``device``, and a refusal for each that cannot."""

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan: ...


@runtime_checkable
class RestsOn(Protocol):
    """A backend that needs a library, which may be missing."""

    def library(self) -> str:
        """The library's name and version here, or one sentence why it is missing."""
        ...


@runtime_checkable
class OnlyHere(Protocol):
    """A backend whose candidates only this process can run; ``only_here`` says why, as the end of a sentence."""

    only_here: str


@runtime_checkable
class SeveralFingerprints(Protocol):
    """A backend with several valid fingerprints: for switches that a user may change between runs, or for single
    candidates."""

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        """All valid fingerprints for the present libraries and sources."""
        ...


@runtime_checkable
class FingerprintsCandidates(SeveralFingerprints, Protocol):
    """A backend with a fingerprint for each candidate. The backend's own fingerprint covers all of them: when it
    changes, searches are repeated, but findings for unchanged candidates still count."""

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        """Old findings for ``candidate`` count only if this text is unchanged."""
        ...


@runtime_checkable
class Compiles(Protocol):
    """A backend that can compile a candidate in another process, without PyTorch and the device. The result is found on
    disk."""

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None: ...

    def load_compiler(self) -> None:
        """Load what is needed to compile and build kernels into this process, once."""
        ...


@runtime_checkable
class Launches(Protocol):
    """A backend that launches its own kernels and knows their number before anything is built."""

    def launches(self, candidate: Candidate, *, packs: bool) -> int:
        """Kernels that one call of ``candidate`` launches; with ``packs`` including those that pack its weight."""
        ...


@runtime_checkable
class Packs(Protocol):
    """A backend that packs weights and knows their packed size before anything is built."""

    def packed_bytes(self, candidate: Candidate) -> int | None:
        """Bytes of the packed weight; None if it stays as it is."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """A backend with more configurations of its algorithms than it lists, or with other names for them."""

    def spelled(self, name: str, problem: Any) -> str:
        """An algorithm's name as in this backend's candidates for ``problem``."""
        ...

    def configured(self, name: str, problem: Any, device: DeviceFacts, policy: Policy) -> Offer | None:
        """The offer with this id, found without listing all others; None if that is impossible."""
        ...

    def variants(self, candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        """Other configurations similar to the ``candidate``'s, listed or not, the most similar first. ``goes_on`` is
        asked before each one, since finding it may take long; False ends the iteration."""
        ...


@runtime_checkable
class Selective(Protocol):
    """A backend that can list some of its algorithms without the others."""

    def called(self, id_: str, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """Offers that include the candidate with this id, if it exists."""
        ...


@runtime_checkable
class Brief(Protocol):
    """A backend that can list its most promising candidates in a fraction of the time that all take."""

    def briefly(self, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """A few offers, the most promising first."""
        ...


@runtime_checkable
class Writable(Protocol):
    """A backend that can write a plan that is slow to build as text, and read it in another process."""

    def written(self, plan: Plan) -> str | None:
        """A plan of this backend as text; None if that would save nothing."""
        ...

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        """The plan from its text, for the same fingerprint and a device of the same name."""
        ...


@runtime_checkable
class Overwrites(Protocol):
    """A backend with plans that may write their output over an operand: each operand element is last read by whatever
    writes the same element of the output."""

    def overwrites(self, candidate: Candidate) -> frozenset[str]:
        """The roles of operands that may share the output's memory, one at a time."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A backend whose library logs more about a refusal than it returns.

    The log is the standard error of a process started with ``log_environment``.
    """

    log_environment: Mapping[str, str]

    def can_be_asked(self, algorithm: str, device: DeviceFacts) -> bool:
        """Whether the library can check ``algorithm``, an id without the backend's name, on ``device``."""

    def attempt(self, problem: Any, algorithm: str, device: DeviceFacts) -> int:
        """Let the library check ``algorithm`` without running it. Returns its workspace in bytes, or raises why not."""

    def causes(self, log: str) -> tuple[str, ...]:
        """The failed conditions in ``log``, deepest first."""
