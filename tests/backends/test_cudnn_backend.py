"""Both of cuDNN's interfaces as one backend."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
import torch

from convwright.backends.cudnn.backend import Cudnn
from convwright.backends.cudnn.graph import listing as graph
from convwright.backends.cudnn.graph.listing import PREFIX
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType, permitted_arithmetic
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import find
from convwright.tuning.listing import candidates

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

PROBLEM, H200 = ConvProblem.parse("mb32ic256ih14oc256kh3ph1"), profile("h200")


def test_what_cudnn_proposes_comes_before_the_classic_algorithms_and_what_it_does_not_after_them() -> None:
    found = [offer for offer in Cudnn().candidates(PROBLEM, H200, Policy()) if isinstance(offer, Candidate)]
    runs = [len(list(run)) for _, run in groupby(found, lambda each: each.algorithm.startswith(PREFIX))]
    proposed, others = graph.offers(PROBLEM, H200)
    classic = [offer for offer in found if not offer.algorithm.startswith(PREFIX)]
    assert runs == [len(candidates(proposed)), len(classic), len(candidates(others))]
    assert found[0] == candidates(proposed)[0]


def test_at_hand_only_the_first_engine_comes_before_the_classic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    engines, algorithms, others = ([Refusal(f"{name}-{i}", "") for i in range(2)] for name in ("a", "b", "c"))
    monkeypatch.setattr(graph, "offers", lambda problem, device: (engines, others))
    monkeypatch.setattr("convwright.backends.cudnn.classic.listing.candidates", lambda *_: iter(algorithms))
    here = replace(H200, torch_name="cuda:0")
    assert here.present
    ids = [offer.id for offer in Cudnn().candidates(PROBLEM, here, Policy())]
    assert ids == ["a-0", "b-0", "b-1", "a-1", "c-0", "c-1"]


def test_where_pytorch_does_without_cudnn_it_serves_nothing_here() -> None:
    here, said = replace(H200, torch_name="cuda:0"), "torch.backends.cudnn.enabled says that cuDNN is switched off"
    with torch.backends.cudnn.flags(enabled=False):
        assert list(Cudnn().candidates(PROBLEM, here, Policy())) == [Refusal("cudnn", said)]
        for name in ("cudnn/engine-1", "cudnn/gemm"):
            assert Cudnn().configured(name, PROBLEM, here, Policy()) == Refusal(name, said)
        assert candidates(list(Cudnn().candidates(PROBLEM, H200, Policy())))


def test_a_list_begins_with_cudnns_first_engine_and_ends_with_what_policy_does_not_allow() -> None:
    # Numbers of fp16 beside a shared power of two promise more, at twice the rate.
    policy = Policy(arithmetic=permitted_arithmetic(DType.FP32, tf32=True) - {Arithmetic.SCALED_FP16})
    with Store.open(None) as store:
        found = find(PROBLEM, H200, policy, mode=Mode.HEURISTIC, store=store)
    first = next(offer for offer in Cudnn().candidates(PROBLEM, H200, Policy()) if isinstance(offer, Candidate))
    assert found.verdicts[0].finding.candidate == first
    disallowed = ["allowed are" in verdict.reason for verdict in found.verdicts]
    assert disallowed == sorted(disallowed)
    assert any(disallowed)


def test_elsewhere_the_least_workspace_comes_first_where_that_is_asked_for() -> None:
    policy = Policy(objective=Objective.WORKSPACE)
    with Store.open(None) as store:
        found = find(PROBLEM, H200, policy, mode=Mode.HEURISTIC, store=store)
    needed = [
        verdict.finding.candidate.workspace_bytes for verdict in found.verdicts if "allowed are" not in verdict.reason
    ]
    known = [each for each in needed if each is not None]
    assert known == sorted(known)
    assert needed[: len(known)] == known


def test_refusals_are_not_what_was_said_of_other_engines() -> None:
    problem = ConvProblem.parse("mb8ic8oc8ih9kh3 dt:int8:int8:int8 ep:bias")
    offers = {offer.id: offer for offer in Cudnn().candidates(problem, profile("t4"), Policy())}
    refused = offers["cudnn/engine-1"]
    assert isinstance(refused, Refusal)
    assert "engineId" not in refused.reason


def test_what_is_known_of_a_candidate_elsewhere_is_in_its_row() -> None:
    with Store.open(None) as store:
        found = find(PROBLEM.asking(Direction.BACKWARD_WEIGHT), H200, Policy(), mode=Mode.HEURISTIC, store=store)
    written = found.to_json()
    rows = {row["id"].partition("[")[0]: row for row in written["candidates"]}
    assert written["too_large"] is None
    assert rows["cudnn/engine-24"]["rounds_sums"]
    assert {row["rounds_sums"] for row in rows.values()} == {False, True}
    assert any(row["estimated_us"] is not None for row in rows.values())
    assert {row["range_limited"] for row in rows.values()} == {False, True}


def test_looking_at_a_device_elsewhere_forgets_nothing() -> None:
    with Store.open(None) as store:
        store.record(PROBLEM.key, H200.key, "cudnn/gemm", "cudnn 91900", None, "ran out of memory")
        find(PROBLEM, H200, Policy(), mode=Mode.HEURISTIC, store=store)
        assert set(store.findings(PROBLEM.key, H200.key)) == {"cudnn/gemm"}


def test_briefly_it_lists_what_its_first_heuristic_proposes() -> None:
    proposed, _ = graph.offers(PROBLEM, H200)
    few = list(Cudnn().briefly(PROBLEM, H200, Policy()))
    assert 5 < len(few) < len(proposed)
    assert few == [*proposed[: len(few)]]
