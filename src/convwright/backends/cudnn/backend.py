"""The backend `cudnn`: the classic API's algorithms and the graph API's engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from convwright import flags
from convwright.backends.cudnn import attempt
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.faults import fault_of
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.backends.cudnn.library import Missing, load
from convwright.backends.cudnn.log import LOG_ENVIRONMENT, failed_conditions
from convwright.backends.cudnn.names import engine_named, spelled
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem


class Cudnn:
    """All algorithms of cuDNN, through both of its APIs."""

    name = "cudnn"
    log_environment = LOG_ENVIRONMENT

    def fingerprint(self, device: DeviceFacts) -> str:
        """The version of cuDNN, since the numbers and knobs of engines change with it. cuDNN is not loaded for a device
        that it does not support."""
        if device.kind != "cuda":
            return "cudnn"
        library = load()
        return f"cudnn {'missing' if isinstance(library, Missing) else library.version}"

    def library(self) -> str:
        return str(load())

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """cuDNN's first proposal, then the classic algorithms, then everything else.

        Preparing an engine takes 3 to 60 ms if its kernels are not loaded yet; a classic algorithm takes 1 to 5 ms.
        Only the first engine comes before the classic algorithms: PyTorch's own call uses it and has loaded it.
        """
        if reason := _objection(problem, device):
            yield Refusal(self.name, reason)
            return
        proposed, others = graph.offers(problem, device)
        before = 1 if device.present else len(proposed)
        yield from proposed[:before]
        yield from classic.candidates(problem, device, policy)
        yield from proposed[before:]
        yield from others

    def briefly(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """The engines that cuDNN's first heuristic proposes."""
        if reason := _objection(problem, device):
            yield Refusal(self.name, reason)
        else:
            yield from graph.offers(problem, device, briefly=True)[0]

    def spelled(self, name: str, problem: ConvProblem) -> str:
        return spelled(name, problem)

    def configured(self, name: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Offer | None:
        if reason := _objection(problem, device):
            return Refusal(name, reason)
        asked = engine_named(name)
        if asked is not None:
            return graph.one(problem, device, *asked)
        return next((offer for offer in classic.candidates(problem, device, policy) if offer.id == name), None)

    def variants(self, candidate: Candidate, device: DeviceFacts, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        if candidate.algorithm.startswith(graph.PREFIX):
            yield from graph.variants(candidate, device, goes_on)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        build = graph.build if candidate.algorithm.startswith(graph.PREFIX) else classic.build
        return build(candidate, device)

    def written(self, plan: Plan) -> str | None:
        return graph.written(plan) if isinstance(plan, GraphPlan) else None

    def read(self, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        return graph.read(candidate, device, text)

    def can_be_asked(self, algorithm: str, device: DeviceFacts) -> bool:
        return attempt.can_be_asked(algorithm, device)

    def attempt(self, problem: ConvProblem, algorithm: str, device: DeviceFacts) -> int:
        return attempt.attempt(problem, algorithm, device)

    def causes(self, log: str) -> tuple[str, ...]:
        return failed_conditions(log)


def _objection(problem: ConvProblem, device: DeviceFacts) -> str | None:
    """A user who disables cuDNN in PyTorch disables all of it, on devices of this machine."""
    against = flags.against_cudnn() if device.kind == "cuda" and device.present else None
    return against or (fault_of(problem) if device.kind == "cuda" else None)
