"""A candidate made ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy

if TYPE_CHECKING:
    from torch import Tensor


class Plan(Protocol):
    """Runs one candidate. Calling it looks nothing up and synchronises nothing.

    The first two operands are multiplied: (x, w) forward, (dy, w) backward data, (x, dy) backward weight; a weight
    goes through ``prepare`` first. With ``out=`` and ``workspace=`` (at least ``workspace_bytes`` of uint8, aligned
    to 256 bytes) given, nothing is allocated, except where ``writes_out`` is False: there the candidate is a call
    of PyTorch's that makes its own output, which is then copied.

    Operands of rarer epilogues are given by name, and only plans for problems that have them take them: ``scale=``,
    ``z=``, what the activation was applied to, and ``db=``, which the bias's gradient is written to. A problem that
    accumulates adds to ``out=``, which then has to be given.
    """

    candidate: Candidate
    workspace_bytes: int
    writes_out: bool

    def prepare(self, weight: Tensor) -> Tensor:
        """Pack a weight into what the kernel wants; the weight itself where nothing need be done."""

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
    """A plan that runs on bare addresses as well, 0 where there is none, on a stream given by its address."""

    def launch(
        self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int
    ) -> None: ...


class Backend(Protocol):
    """A way of computing problems of one kind. It answers three questions and nothing else; none knows another, nor
    the tuner."""

    name: str

    def fingerprint(self, device: DeviceFacts) -> str:
        """What must be the same for an old finding to count."""

    def candidates(self, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """Every way this backend could compute ``problem`` on ``device``, and a refusal for each that cannot."""

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan: ...


@runtime_checkable
class RestsOn(Protocol):
    """A backend that needs a library which need not be there."""

    def library(self) -> str:
        """The library as it is here, or in one sentence why it cannot be had."""
        ...


@runtime_checkable
class OnlyHere(Protocol):
    """A backend whose candidates no other process can run; ``only_here`` says why, as the end of a sentence."""

    only_here: str


@runtime_checkable
class SeveralFingerprints(Protocol):
    """A backend whose findings have different fingerprints, which all count: they tell of switches that a user may
    change from one run to the next, or candidates have fingerprints of their own."""

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        """All that count as long as libraries and sources are the same."""
        ...


@runtime_checkable
class FingerprintsCandidates(SeveralFingerprints, Protocol):
    """A backend whose candidates have fingerprints of their own. The backend's fingerprint covers all of them: when it
    changes, searches are made again, and findings of candidates that are the same still count."""

    def fingerprint_of(self, candidate: Candidate, device: DeviceFacts) -> str:
        """What must be the same for an old finding about ``candidate`` to count."""
        ...


@runtime_checkable
class Compiles(Protocol):
    """A backend that can compile a candidate in another process than the one that builds it, in which neither PyTorch
    nor the device need be present: what was made is found again on disk."""

    def compile(self, candidate: Candidate, device: DeviceFacts) -> None: ...

    def load_compiler(self) -> None:
        """Load what kernels are compiled and built with into this process, once."""
        ...


@runtime_checkable
class Launches(Protocol):
    """A backend that launches kernels by itself, and knows how many a call takes before anything is built."""

    def launches(self, candidate: Candidate, *, packs: bool) -> int:
        """Kernels that one call of ``candidate`` launches; where it ``packs``, with those that pack its weight."""
        ...


@runtime_checkable
class Packs(Protocol):
    """A backend that packs weights, and knows before anything is built what they take then."""

    def packed_bytes(self, candidate: Candidate) -> int | None:
        """Bytes of the packed weight; None where it stays as the problem lays it."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """A backend that has more configurations of its algorithms than it lists, or other names for them."""

    def spelled(self, name: str, problem: Any) -> str:
        """An algorithm's name as this backend's candidates for ``problem`` have it."""
        ...

    def configured(self, name: str, problem: Any, device: DeviceFacts, policy: Policy) -> Offer | None:
        """What has this id, listed or not, without listing the others; None where that cannot be told."""
        ...

    def variants(self, candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        """Configurations near that of ``candidate`` which need not be listed, the nearest first, until ``goes_on`` says
        no: to find the next one may take long."""
        ...


@runtime_checkable
class Selective(Protocol):
    """A backend that can list some of its algorithms without the others."""

    def called(self, id_: str, problem: Any, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """Offers among which the candidate with this id is, if there is one."""
        ...


@runtime_checkable
class Writable(Protocol):
    """A backend that can write down a plan which it takes long to build, and read it in another process."""

    def written(self, plan: Plan) -> str | None:
        """A plan of this backend as text; None where that would save nothing."""
        ...

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        """The plan again, under the same fingerprint and on a device of the same name."""
        ...


@runtime_checkable
class Overwrites(Protocol):
    """A backend of which some plans may write their output over an operand: each element of that is read, for the last
    time, by what then writes the same element of the output."""

    def overwrites(self, candidate: Candidate) -> frozenset[str]:
        """The roles of the operands that may have the output's memory; one at a time."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A backend whose library says more about a refusal in its log than it returns.

    The log is what stands on standard error of a process that was begun with ``log_environment``.
    """

    log_environment: Mapping[str, str]

    def can_be_asked(self, algorithm: str, device: DeviceFacts) -> bool:
        """Whether the library answers for ``algorithm``, an id without the backend's name, on ``device``."""

    def attempt(self, problem: Any, algorithm: str, device: DeviceFacts) -> int:
        """Have the library check ``algorithm``, which runs nothing: its workspace in bytes, or raised why not."""

    def causes(self, log: str) -> tuple[str, ...]:
        """The conditions that ``log`` says an attempt failed on, the deepest first."""
