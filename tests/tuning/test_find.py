"""The search: what the store knows is not measured again, nothing runs where nothing may, failures are reported."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import convwright as cw
from convwright.backends.reference.backend import Reference
from convwright.backends.torch_native.backend import TorchNative
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from convwright.naming import singular
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning import run as tuner
from convwright.tuning.find import Findings, find
from convwright.tuning.session import Session
from tuning.made import CPU, PROBLEM, FakeTuner

GEMM = "reference/gemm"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(None) as opened:
        yield opened


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    return FakeTuner({GEMM: 10.0}).in_place(monkeypatch)


def search(store: Store, problem: ConvProblem = PROBLEM, **changed: Any) -> Findings:
    asked: dict[str, Any] = {"device": CPU, "policy": Policy(), "mode": Mode.QUICK, "store": store}
    return find(problem, **(asked | changed))


def chosen(found: Findings) -> str:
    assert found.choice is not None
    return found.choice.candidate.id


def test_the_second_search_measures_nothing_and_finds_the_same(store: Store, fake: FakeTuner) -> None:
    first, second = search(store), search(store)
    assert len(fake.calls) == 1
    assert chosen(first) == chosen(second) == GEMM
    assert not any(verdict.finding.remembered for verdict in first.verdicts)
    assert all(verdict.finding.remembered for verdict in second.verdicts)
    assert [v.finding.candidate for v in first.verdicts] == [v.finding.candidate for v in second.verdicts]


def test_inside_of_autocast_candidates_are_measured_as_they_are(
    store: Store, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast: list[bool] = []

    def measured(*given: Any, **more: Any) -> Any:
        cast.append(torch.is_autocast_enabled("cpu"))
        return fake(*given, **more)

    monkeypatch.setattr(tuner, "measure_candidates", measured)
    with torch.autocast("cpu", torch.bfloat16):
        search(store)
        assert torch.is_autocast_enabled("cpu")
    assert cast == [False]


def test_every_allowed_candidate_is_measured_the_baseline_among_them(store: Store, fake: FakeTuner) -> None:
    found = search(store)
    assert set(fake.calls[0]) == {verdict.finding.candidate.id for verdict in found.verdicts}
    assert {"torch/default", GEMM, "relayout(nhwc, reference/gemm)"} <= set(fake.calls[0])
    assert found.baseline is not None
    assert found.baseline.candidate.id == "torch/default"


def test_what_policy_forbids_is_listed_and_not_measured(store: Store, fake: FakeTuner) -> None:
    found = search(store, policy=Policy(max_workspace_bytes=0))
    assert GEMM not in fake.calls[0]
    rows = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert "of workspace, 0 are allowed" in rows[GEMM]
    assert chosen(found) == "torch/default"


def needed_bytes() -> int:
    """The workspace that GEMM needs; one byte less is of the same magnitude."""
    known = listing.with_id(GEMM, PROBLEM, CPU, Policy())
    assert known is not None
    assert known.workspace_bytes is not None
    assert known.workspace_bytes.bit_length() == (known.workspace_bytes - 1).bit_length()
    return known.workspace_bytes


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_what_a_limit_forbids_is_measured_under_the_next_byte(mode: Mode, store: Store, fake: FakeTuner) -> None:
    enough = needed_bytes()
    assert chosen(search(store, mode=mode, policy=Policy(max_workspace_bytes=enough - 1))) != GEMM
    for _ in range(2):
        assert chosen(search(store, mode=mode, policy=Policy(max_workspace_bytes=enough))) == GEMM
    assert [GEMM in ids for ids in fake.calls] == [False, True]
    for limit in (enough - 1, enough):  # each stays known beside the other
        search(store, mode=mode, policy=Policy(max_workspace_bytes=limit))
        assert Session(mode, store).knows(PROBLEM, CPU, Policy(max_workspace_bytes=limit))
    assert len(fake.calls) == 2


def test_under_a_limit_that_permits_no_more_nothing_is_measured_again(store: Store, fake: FakeTuner) -> None:
    for limit in (1 << 29, (1 << 29) + 1, 1 << 31):
        assert chosen(search(store, policy=Policy(max_workspace_bytes=limit))) == GEMM
    assert fake.calls[1:] == [[], []]


def test_a_limit_that_follows_free_memory_makes_no_new_search(
    store: Store, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search_with(limit: int, policy: Policy = Policy()) -> None:
        monkeypatch.setattr("convwright.tuning.search.free_memory_bytes", lambda device: 10 * limit)
        search(store, policy=policy)

    search_with(900_000)
    search_with(600_000)
    assert len(fake.calls) == 1
    search_with(600_000, Policy(max_workspace_bytes=900_000))
    assert len(fake.calls) == 1, "the same limit, whoever sets it"
    search_with(600_000, Policy(max_workspace_bytes=800_000))
    search_with(400_000)
    search_with(400_000, Policy(max_workspace_bytes=200_000))
    assert len(fake.calls) == 4
    search_with(200_000)
    assert len(fake.calls) == 4, "the same limit, whoever sets it"


def test_a_search_of_an_earlier_version_counts_where_nobody_limits_the_workspace(
    store: Store, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not say under which limit it was made, but for its magnitude."""
    monkeypatch.setattr("convwright.tuning.search.free_memory_bytes", lambda device: None)
    search(store)
    ((scope, text),) = store._database.execute("SELECT scope, candidates FROM search WHERE scope LIKE '%relayout%'")
    assert " 2^31 " in scope
    ids = [id_ for id_ in json.loads(text) if id_ != "1073741824 bytes"]
    assert len(ids) == len(json.loads(text)) - 1
    store._database.execute("UPDATE search SET candidates = ? WHERE scope = ?", (json.dumps(ids), scope))
    search(store)
    assert len(fake.calls) == 1
    search(store, policy=Policy(max_workspace_bytes=1 << 30))
    assert len(fake.calls) == 2


def test_a_quick_search_serves_after_a_full_one_and_not_the_other_way_round(store: Store, fake: FakeTuner) -> None:
    search(store, mode=Mode.QUICK)
    search(store, mode=Mode.FULL)
    assert len(fake.calls) == 2
    with Store.open(None) as other:
        for mode in (Mode.FULL, Mode.QUICK, Mode.FULL):
            search(other, mode=mode)
    assert len(fake.calls) == 3


def test_a_search_serves_no_one_who_gives_more_time(store: Store, fake: FakeTuner) -> None:
    """What it found out in a hurry is found out anew."""
    for budget_us in (1e6, 1e6, 1e6 / 3):
        search(store, mode=Mode.FULL, budget_us=budget_us)
    search(store, mode=Mode.QUICK)
    assert len(fake.calls) == 1
    for budget_us in (None, 1e6, None):
        search(store, mode=Mode.FULL, budget_us=budget_us)
    assert len(fake.calls) == 2
    for _ in range(2):
        search(store, mode=Mode.FULL, budget_us=8.3e7 / 2 + 0.4)
    assert len(fake.calls) == 3
    assert set(fake.calls[0]) <= set(fake.calls[1])


def test_what_was_timed_and_never_checked_is_measured_again_in_full(store: Store, fake: FakeTuner) -> None:
    """A quick search looks at the errors of the fastest only; that must not bar the others for ever."""
    fake.unchecked = {GEMM}
    assert chosen(search(store, mode=Mode.QUICK)) != GEMM
    fake.unchecked = set()
    assert chosen(search(store, mode=Mode.FULL)) == GEMM
    assert GEMM in fake.calls[1]


def test_other_problems_devices_and_permissions_are_searched_anew(store: Store, fake: FakeTuner) -> None:
    search(store)
    search(store, PROBLEM.asking(cw.Direction.BACKWARD_DATA))
    search(store, device=DeviceFacts("this CPU", "cpu", "any", torch_name="cpu", threads=2))
    search(store, policy=Policy(deterministic=True))
    assert len(fake.calls) == 4


def test_a_changed_fingerprint_is_measured_again_beside_pytorchs_own_call(
    store: Store, fake: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(store)
    monkeypatch.setattr(Reference, "fingerprint", lambda self, device: "a newer one")
    found = search(store)
    assert len(fake.calls) == 2
    assert set(fake.calls[1]) == {c for c in fake.calls[0] if "reference" in c} | {"torch/default"}
    rows = {v.finding.candidate.id: v.finding for v in found.verdicts}
    assert not rows["torch/default"].remembered, "times of two searches are not compared"
    assert not rows[GEMM].remembered
    search(store)
    assert len(fake.calls) == 2


def test_where_nothing_is_known_of_pytorchs_own_call_all_are_timed_beside_it(store: Store, fake: FakeTuner) -> None:
    """As when other work disturbed it: its time of now and theirs of then are not compared."""
    search(store)
    store.forget(PROBLEM.key, CPU.key, ["torch/default"])
    found = search(store)
    assert sorted(fake.calls[1]) == sorted(fake.calls[0])
    assert not any(verdict.finding.remembered for verdict in found.verdicts)


def test_findings_are_stored_and_choices_are_not(store: Store, fake: FakeTuner) -> None:
    assert chosen(search(store)) == GEMM
    tight = search(store, policy=Policy(max_error=1e-3))
    assert chosen(tight) == "torch/default"
    assert not any(fake.calls[1:]), "what is known is not measured again"


def test_what_a_search_measures_is_observed_with_its_permission(store: Store, fake: FakeTuner) -> None:
    asked: dict[str, Any] = {"policy": Policy(max_workspace_bytes=1 << 30), "budget_us": 2e6}
    for mode in (Mode.QUICK, Mode.FULL, Mode.FULL):
        search(store, mode=mode, **asked)
        latest = {each.candidate.id: each for each in store.observations(CPU.key)}
        known = {name: (each.measurement, each.reason, each.fingerprint) for name, each in latest.items()}
        found = store.findings(PROBLEM.key, CPU.key)
        assert known == {name: (each.measurement, each.failure, each.fingerprint) for name, each in found.items()}
    quick, full = (list(store.observations(CPU.key, mode=mode)) for mode in ("quick", "full"))
    assert 0 < len(quick) < len(full) == len(found)  # nothing gave way, and the third search ran nothing
    assert store.observed(CPU.key) == len(quick) + len(full)
    assert {(each.policy.max_workspace_bytes, each.budget_us) for each in (*quick, *full)} == {(1 << 30, 2e6)}
    (allowed,) = {each.policy.arithmetic for each in (*quick, *full)}
    assert allowed is not None
    assert allowed & {Arithmetic.FP32, Arithmetic.TF32} == {Arithmetic.FP32}


def test_a_heuristic_search_runs_nothing(store: Store, fake: FakeTuner) -> None:
    found = search(store, mode=Mode.HEURISTIC)
    assert fake.calls == []
    assert found.choice is None
    assert {verdict.reason for verdict in found.verdicts} == {"was not measured: nothing runs in mode heuristic"}
    assert store.findings(PROBLEM.key, CPU.key) == {}


def test_a_heuristic_search_takes_what_the_store_knows(store: Store, fake: FakeTuner) -> None:
    search(store)
    assert chosen(search(store, mode=Mode.HEURISTIC)) == GEMM


def test_a_device_elsewhere_is_listed_and_nothing_runs(store: Store, fake: FakeTuner) -> None:
    found = search(store, device=profile("h200"), mode=Mode.FULL)
    assert fake.calls == []
    assert found.choice is None
    assert found.mode is Mode.HEURISTIC
    forbidden = "computes in fp16-acc32, allowed are 3xfp16, 3xtf32, fp32, fp64, scaled-fp16, tf32"
    absent = "was not measured: NVIDIA H200 is not in this machine"
    assert {verdict.reason for verdict in found.verdicts} <= {absent, forbidden}
    ids = {verdict.finding.candidate.id for verdict in found.verdicts}
    assert GEMM in ids
    refused = {refusal.id: refusal.reason for refusal in found.refusals}
    assert "needs a device of this machine" in refused["torch/default"]
    assert all(refusal.reason for refusal in found.refusals)


@pytest.mark.parametrize("text", ["mb100000ic64ih224oc64kh3ph1", "mb999999999999999999ic8ih9oc8kh3"])
def test_operands_that_fit_into_no_memory_are_never_made(store: Store, fake: FakeTuner, text: str) -> None:
    problem, device = ConvProblem.parse(text), replace(CPU, memory_bytes=64_000_000_000)
    with pytest.raises(BadInput, match=r"its operands take [\d,.]+ GB, .* has 64\.0 GB of memory"):
        search(store, problem, device=device)
    assert fake.calls == []
    assert search(store, problem, device=device, mode=Mode.HEURISTIC).verdicts


def test_a_call_whose_operands_cannot_be_made_twice_is_left_to_pytorch(store: Store, fake: FakeTuner) -> None:
    found = search(store, device=replace(CPU, memory_bytes=1000), then=lambda: None)
    assert fake.calls == []
    assert (found.choice, found.mode) == (None, Mode.HEURISTIC)
    rows = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert rows["torch/default"].startswith("was not measured: its operands take")


def test_operands_fit_as_far_as_is_known(store: Store, fake: FakeTuner) -> None:
    needed = sum(spec.nbytes for spec in (PROBLEM.x, PROBLEM.w, PROBLEM.y))
    for memory_bytes in (needed, None):
        assert search(store, device=replace(CPU, memory_bytes=memory_bytes)).choice is not None
    with pytest.raises(BadInput, match="its operands take"):
        search(store, device=replace(CPU, memory_bytes=needed - 1))


def test_refusals_have_reasons(store: Store) -> None:
    refused = {refusal.id: refusal.reason for refusal in search(store, mode=Mode.HEURISTIC).refusals}
    assert "NVIDIA" in refused["cudnn/gemm"]
    assert refused["split-batch(4)"] == "a batch of 2 cannot be split into 4 equal parts"


def test_everything_is_data(store: Store, fake: FakeTuner) -> None:
    found = search(store)
    data = json.loads(json.dumps(found.to_json()))
    assert (data["problem"], data["device"], data["mode"]) == (PROBLEM.key, singular(CPU.key), "quick")
    assert (data["choice"], data["baseline"]) == (GEMM, "torch/default")
    first = data["candidates"][0]
    assert (first["id"], first["call_us"], first["arithmetic"]) == (GEMM, 10.0, "fp32")
    assert first["measurement"]["device_us"]["value"] == 10.0
    assert data["refusals"][0].keys() == {"id", "reason"}


# Here candidates are really built and run.


def test_a_small_search_on_this_machine(store: Store) -> None:
    found = search(store, device=device_facts("cpu"), mode=Mode.FULL, budget_us=4_000_000.0)
    rows = {verdict.finding.candidate.id: verdict for verdict in found.verdicts}
    assert found.choice is not None
    for id_ in ("torch/default", GEMM):
        measurement = rows[id_].finding.measurement
        assert measurement is not None
        assert measurement.device_us.value > 0
        assert {error.kind for error in measurement.errors} >= {"normal", "positive"}
        assert dict(measurement.conditions)["threads"]
    again = search(store, device=device_facts("cpu"), mode=Mode.FULL, budget_us=4_000_000.0)
    assert chosen(again) == chosen(found)
    assert again.verdicts[0].finding.measurement == found.verdicts[0].finding.measurement


def test_a_first_meeting_keeps_its_budget_on_this_machine(store: Store) -> None:
    """The wall time of everything; the margin is for other work on the machine."""
    cpu = device_facts("cpu")
    search(store, ConvProblem.parse("ic2ih5oc2kh1"), device=cpu)  # loads what a process loads once
    spent_s = []
    for size in (9, 18, 27):
        unseen = ConvProblem.parse(f"mb2ic16ih{size}oc16kh3ph1")
        begun = time.perf_counter()
        search(store, unseen, device=cpu, budget_us=200_000.0)
        spent_s.append(time.perf_counter() - begun)
    assert min(spent_s) < 0.25
    assert sum(spent_s) < 3.0


def test_a_full_search_of_what_a_quick_one_has_measured_entirely(store: Store) -> None:
    small, cpu = ConvProblem.parse("ic2ih4oc2kh1"), device_facts("cpu")
    for mode in (Mode.QUICK, Mode.FULL, Mode.FULL):
        found = search(store, small, device=cpu, mode=mode, budget_us=2_000_000.0)
        assert found.choice is not None


def test_nothing_runs_at_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    for member in (Reference, TorchNative):
        monkeypatch.setattr(member, "build", broken)
    found = search(store, device=device_facts("cpu"), budget_us=2_000_000.0)
    assert found.choice is None
    assert {verdict.reason for verdict in found.verdicts} == {"failed: no such kernel"}


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
@pytest.mark.parametrize("error", [RuntimeError("no such\nkernel"), cw.BackendError("no such"), ValueError("no such")])
def test_a_candidate_that_fails_is_reported_and_the_others_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, mode: Mode, error: Exception
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Reference, "build", broken)
    found = search(store, device=device_facts("cpu"), mode=mode, budget_us=500_000.0)
    rows = {verdict.finding.candidate.id: verdict for verdict in found.verdicts}
    assert rows[GEMM].reason == "failed: no such"
    assert rows[GEMM].finding.measurement is None
    assert "torch/default" in chosen(found)
    stored = store.findings(PROBLEM.key, device_facts("cpu").key)
    assert stored[GEMM].failure == "failed: no such"


def test_a_candidate_that_computes_wrong_is_not_chosen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        writes_out, workspace_bytes = False, 0

        def __init__(self, candidate: Any) -> None:
            self.candidate = candidate

        def prepare(self, weight: Any) -> Any:
            return weight

        def __call__(self, *operands: Any) -> Any:
            x, w, *_ = operands
            return x.new_zeros(x.shape[0], w.shape[0], *x.shape[2:])

    monkeypatch.setattr(Reference, "build", lambda self, candidate, device: Wrong(candidate))
    found = search(store, device=device_facts("cpu"), mode=Mode.FULL, budget_us=2_000_000.0)
    rows = {verdict.finding.candidate.id: verdict for verdict in found.verdicts}
    assert chosen(found) != GEMM
    assert "relative L2 error" in rows[GEMM].reason


def test_backends_are_spread_so_that_each_has_its_first_look_early() -> None:
    listed = listing.candidates(listing.direct(PROBLEM, profile("h200"), Policy()))
    spread = listing.spread(listed)
    assert sorted(c.id for c in spread) == sorted(c.id for c in listed)
    backends = {candidate.backend for candidate in listed}
    assert {candidate.backend for candidate in spread[: len(backends)]} == backends


def test_data_says_one_thread_as_tables_do(store: Store) -> None:
    found = search(store, mode=Mode.HEURISTIC, device=replace(CPU, threads=1))
    assert found.to_json()["device"].endswith(", 1 thread")
