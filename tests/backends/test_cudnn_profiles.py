"""cuDNN's planner takes every profile's record and plans for it; what it has nothing for is refused in its words."""

from __future__ import annotations

import pytest

from convwright.api.finding import find
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import names, profile
from convwright.store.store import Store

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

LAYER = "mb32ic64ih56oc64kh3ph1"


def planned(text: str, name: str) -> list[Candidate]:
    offers = graph.candidates(ConvProblem.parse(text), profile(name), Policy())
    return [offer for offer in offers if isinstance(offer, Candidate)]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_engines_for_fp16(name: str, direction: str) -> None:
    found = planned(f"{LAYER} dt:fp16 tag:nhwc dir:{direction}", name)
    assert len(found) >= 3
    assert all(isinstance(candidate.workspace_bytes, int) for candidate in found)
    assert {candidate.source for candidate in found} == {Source.PLANNER}


def test_each_architecture_has_engines_of_its_own() -> None:
    text = f"{LAYER} dt:fp16 tag:nhwc"
    by_architecture = {
        profile(name).architecture: frozenset(candidate.id for candidate in planned(text, name)) for name in names()
    }
    assert len(set(by_architecture.values())) == len(by_architecture)


@pytest.mark.parametrize("name", names())
def test_tf32_is_planned_exactly_where_the_device_has_it(name: str) -> None:
    found = {candidate.arithmetic for candidate in planned(LAYER, name)}
    assert Arithmetic.FP32 in found
    assert (Arithmetic.TF32 in found) == (profile(name).peak(Arithmetic.TF32) is not None)


@pytest.mark.parametrize("name", names())
def test_find_lists_what_there_is(name: str) -> None:
    found = find(LAYER + " dt:fp16 tag:nhwc", device=name, mode="heuristic", store=Store.open(None))
    assert found.device is profile(name)
    listed = [verdict.finding.candidate for verdict in found.verdicts]
    assert any(candidate.backend == "cudnn" for candidate in listed)
    assert all(verdict.finding.measurement is None for verdict in found.verdicts)


@pytest.mark.parametrize("name", names())
def test_bf16_has_no_engine_where_the_device_has_no_bf16(name: str) -> None:
    found = {candidate.arithmetic for candidate in planned(f"{LAYER} dt:bf16 tag:nhwc", name)}
    assert found == ({Arithmetic.BF16_ACC32} if profile(name).peak(Arithmetic.BF16_ACC32) else set())


@pytest.mark.parametrize("name", ["t4", "v100"])
def test_an_empty_list_is_a_refusal(name: str) -> None:
    (refusal,) = graph.candidates(ConvProblem.parse(f"{LAYER} dt:bf16 tag:nhwc"), profile(name), Policy())
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "cuDNN proposes no engine for this problem"
