"""The backend `cudnn`: the classic API's algorithms and the graph API's engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from convwright.backends.cudnn import attempt
from convwright.backends.cudnn.classic import listing as classic
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.plan import GraphPlan
from convwright.backends.cudnn.library import Missing, load
from convwright.backends.cudnn.log import LOG_ENVIRONMENT, failed_conditions
from convwright.backends.cudnn.names import engine_named, spelled
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem


def by_turns(*lists: Sequence[Offer]) -> Iterator[Offer]:
    """The first of each, the second of each, …"""
    return (offer for turn in zip_longest(*lists) for offer in turn if offer is not None)


class Cudnn:
    """Everything that cuDNN has, through both of its programming interfaces."""

    name = "cudnn"
    log_environment = LOG_ENVIRONMENT

    def fingerprint(self, device: DeviceFacts) -> str:
        """The version of cuDNN: engines' numbers and knobs change with it. Where it serves nothing it is not loaded."""
        if device.kind != "cuda":
            return "cudnn"
        library = load()
        return f"cudnn {'missing' if isinstance(library, Missing) else library.version}"

    def library(self) -> str:
        return str(load())

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        """What cuDNN proposes itself, then the classic algorithms, then what else there is.

        PyTorch takes the first of what is proposed, or the fastest of the first ten where its benchmark is on. To make
        one ready takes 3 to 60 ms, as it is not for a device elsewhere; so at hand these and the classic algorithms,
        which take 1 to 5, come by turns.
        """
        proposed, others = graph.offers(problem, device)
        algorithms = tuple(classic.candidates(problem, device, policy))
        yield from by_turns(proposed, algorithms) if device.present else (*proposed, *algorithms)
        yield from others

    def spelled(self, name: str, problem: ConvProblem) -> str:
        return spelled(name, problem)

    def configured(self, name: str, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Offer | None:
        asked = engine_named(name)
        if asked is not None:
            return graph.one(problem, device, *asked)
        return next((offer for offer in classic.candidates(problem, device, policy) if offer.id == name), None)

    def variants(self, candidate: Candidate, device: DeviceFacts) -> Iterator[Candidate]:
        if candidate.algorithm.startswith(graph.PREFIX):
            yield from graph.variants(candidate, device)

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
