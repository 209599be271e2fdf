"""An observation goes to strict JSON and back, whatever its candidate is made of."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from convwright import strict_json
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.kinds.text import parse
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.errors import BadInput
from convwright.tuning import listing

CPU = DeviceFacts("a CPU", "cpu", "x86-64", torch_name="cpu", threads=2)


def _observation(candidate: Candidate) -> Observation:
    measurement = Measurement(
        Interval(3.0, 2.5, inf), None, (KindError("plain", 1e-7, inf),), 0, 8, (("cache", "hot"),), energy_mj=0.5
    )
    policy = Policy(max_workspace_bytes=7, arithmetic=frozenset({Arithmetic.FP32}))
    return Observation(
        candidate, CPU.key, "torch 2.13", Outcome.MEASURED, measurement, None, (2.5, 3.0), policy, "campaign", 1e6, 2.5
    )


@pytest.mark.parametrize("text", ["ic8ih9oc8kh3", "mb32ic64ih7oc8kh1", 'pointwise "relu(a + b)" mb1ic8ih9'])
def test_every_candidate_comes_back(text: str) -> None:
    problem, policy = parse(text), Policy(max_workspace_bytes=1 << 30)
    offers = listing.direct(problem, CPU, policy)
    if problem.kind == "conv":
        offers += listing.rewritten(problem, CPU, policy)
    listed = listing.candidates(offers)
    assert listed
    for candidate in listed:
        known = _observation(candidate)
        again = Observation.from_json(strict_json.loads(strict_json.dumps(known.to_json())))
        assert again == known
        assert again.candidate.id == candidate.id
        assert again.candidate.estimated_us == candidate.estimated_us


def test_an_attempt_that_failed_has_a_reason() -> None:
    candidate = Candidate(parse("ic8ih9oc8kh3"), "torch", "default", (), Arithmetic.FP32, None, None, Source.RULE)
    failed = replace(_observation(candidate), outcome=Outcome.HUNG, measurement=None, reason="not done after 10 s")
    assert Observation.from_json(strict_json.loads(strict_json.dumps(failed.to_json()))) == failed


@pytest.mark.parametrize("change", [{"schema": "other"}, {"outcome": "lost"}, {"candidate": {}}, {"rounds_us": None}])
def test_other_records_are_refused_in_a_sentence(change: dict[str, object]) -> None:
    candidate = Candidate(parse("ic8ih9oc8kh3"), "torch", "default", (), Arithmetic.FP32, None, None, Source.RULE)
    with pytest.raises(BadInput, match="convwright observation 1"):
        Observation.from_json({**_observation(candidate).to_json(), **change})
