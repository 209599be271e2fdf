"""A search that runs out of memory says so of each candidate, goes on, and is made again another time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from convwright.backends.cudnn.status import explain
from convwright.core.candidate import Refusal
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.errors import BackendError
from convwright.settings import Mode, Trust, settings
from convwright.shortage import OutOfMemory, is_shortage, needing, shortage
from convwright.store.store import Store
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import Findings, find
from convwright.tuning.kernels import BEING_COMPILED
from convwright.tuning.session import Session
from convwright.tuning.trials import checks, trial, verify, warm_up
from convwright.tuning.trials.search_input import SEED
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, MadePlan, MadeQuick, Way

GEMM = "reference/gemm"


def no_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 1 GiB")


class Short:
    """torch, but for workspaces, of which there are none."""

    @staticmethod
    def empty(nbytes: int, **named: Any) -> Tensor:
        return no_memory() if nbytes else torch.empty(0, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(None) as opened:
        yield opened


def search(store: Store, mode: Mode = Mode.QUICK, **changed: Any) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=mode, store=store, budget_us=2e6, **changed)


def rows(found: Findings) -> dict[str, Finding]:
    return {verdict.finding.candidate.id: verdict.finding for verdict in found.verdicts}


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
@pytest.mark.parametrize("status", [1001, 4004])
def test_what_a_backend_had_no_memory_to_list_is_found_by_the_next_search(
    status: int, mode: Mode, made: Made, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Refusal("quick/graph", explain(status))
    made.quick = {"fast": Way(500.0)}
    with monkeypatch.context() as patch:
        patch.setattr(MadeQuick, "candidates", lambda *_: iter([short]))
        found = search(store, mode)
        assert found.refusals == (short,)
        assert list(rows(found)) == ["torch/default"]
    assert not Session(mode, store).knows(PROBLEM, CPU, Policy())
    assert Session(mode, store).answer(PROBLEM, CPU, Policy(), None, None).captured.candidate.id == "quick/fast"
    assert Session(mode, store).knows(PROBLEM, CPU, Policy())


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_a_candidate_without_its_workspace_is_said_to_have_none(
    mode: Mode, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "torch", Short())
    found = search(store, mode)
    assert found.choice is not None
    gemm = rows(found)[GEMM]
    assert (gemm.failure, gemm.measurement) == (None, None)
    assert gemm.note == f"out of memory for its workspace of {gemm.candidate.workspace_bytes:,} bytes"
    reasons = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert reasons[GEMM] == gemm.note
    monkeypatch.undo()
    again = rows(search(store, mode))[GEMM]
    assert (again.remembered, again.failure) == (False, None)
    assert "memory" not in str(again.note)


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_without_room_for_operands_nothing_is_chosen_and_nothing_raised(
    mode: Mode, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm_up.warm_up(CPU, store)
    monkeypatch.setattr(trial, "operands", no_memory)
    found = search(store, mode)
    assert found.choice is None
    nbytes = sum(spec.nbytes for spec in PROBLEM.operands.values())
    notes = {finding.note for finding in rows(found).values()}
    assert f"out of memory for operands of {nbytes:,} bytes" in notes
    assert GEMM in rows(found)
    monkeypatch.undo()
    assert search(store, mode).choice is not None


def test_a_call_that_cannot_be_searched_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    settings.cache_clear()
    monkeypatch.setattr(trial, "operands", no_memory)
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)
    for _ in range(3):
        assert torch.equal(cw.conv2d(x, w, policy=Policy()), F.conv2d(x, w))
    choice = cw.last_choice()
    assert choice is not None
    assert choice.is_torch


def test_a_cold_process_without_memory_stays_cold(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up.forget()
    monkeypatch.setattr(trial, "operands", no_memory)
    search(store)
    assert CPU.torch_name not in warm_up._warm
    monkeypatch.undo()
    search(store)
    assert CPU.torch_name in warm_up._warm


def test_what_is_compiled_for_a_call_and_has_no_memory_is_tried_another_time(made: Made, store: Store) -> None:
    made.compiled = {"kernel": Way(500.0)}
    made.compiler = no_memory
    assert rows(search(store, then=lambda: None))["compiled/kernel"].note == BEING_COMPILED
    compile_queue().wait_for_all()
    note = rows(search(store, then=lambda: None))["compiled/kernel"].note
    assert note == "out of memory: CUDA out of memory. Tried to allocate 9.00 GiB."
    made.compiler = lambda id_: None
    assert rows(search(store))["compiled/kernel"].measurement is not None


@pytest.mark.parametrize(
    "failure",
    [
        "failed: CUDA out of memory. Tried to allocate 9.00 GiB.",
        "failed: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_what_failed_so_under_an_earlier_version_is_tried_again(failure: str, made: Made, tmp_path: Path) -> None:
    made.quick = {"fast": Way(500.0), "broken": Way(600.0)}
    with Store.open(tmp_path / "findings.sqlite") as store:
        fresh = rows(search(store))
        prints = {id_: entry.fingerprint for id_, entry in store.findings(PROBLEM.key, CPU.key).items()}
        assert fresh["quick/fast"].measurement is not None
        for id_, said in (("quick/fast", failure), ("quick/broken", "failed: it gives NaN")):
            store.record(PROBLEM.key, CPU.key, id_, prints["quick/fast"], None, said)
        assert not Session(Mode.QUICK, store).knows(PROBLEM, CPU, Policy())
        assert store.findings(PROBLEM.key, CPU.key)["quick/fast"].failure == failure, "who reads deletes nothing"
        found = search(store)
        assert found.choice is not None
        assert (found.choice.candidate.id, found.choice.remembered) == ("quick/fast", False)
        assert rows(found)["quick/broken"].failure == "failed: it gives NaN"
        again = search(store)
        assert rows(again)["quick/fast"].remembered
        assert Session(Mode.QUICK, store).knows(PROBLEM, CPU, Policy())


class ShortPlan(MadePlan):
    """Runs out of memory from a certain call on."""

    left = 0

    def __call__(self, *operands: Any) -> Tensor:
        if self.candidate.backend == "quick":
            type(self).left -= 1
            if type(self).left < 0:
                no_memory()
        return super().__call__(*operands)


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
@pytest.mark.parametrize("calls", [0, 1, 3, 6, 9, 12, 15, 40])
def test_memory_may_end_at_any_moment(
    mode: Mode, calls: int, made: Made, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.quick = {"fast": Way(500.0)}
    ShortPlan.left = calls
    monkeypatch.setattr("tuning.made_backend.MadePlan", ShortPlan)
    found = search(store, mode)
    assert found.choice is not None
    assert rows(found)["quick/fast"].failure is None
    assert store.findings(PROBLEM.key, CPU.key).get("quick/fast") is None or found.choice.candidate.id == "quick/fast"


def test_slow_ones_that_run_out_of_memory_end_nothing(
    made: Made, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.quick = {"slow": Way(9000.0)}
    ShortPlan.left = 3
    monkeypatch.setattr("tuning.made_backend.MadePlan", ShortPlan)
    assert search(store, Mode.FULL).choice is not None


def test_a_reference_that_has_no_room_gives_way_to_some_elements(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "whole_reference", no_memory)
    found = search(store, Mode.FULL)
    assert found.choice is not None
    assert found.baseline is not None
    measured = found.baseline.measurement
    assert measured is not None
    assert dict(measured.conditions)["checked"].startswith("some elements of the output, on normal, ")


def test_without_room_for_fresh_inputs_the_final_takes_those_that_there_are(
    made: Made, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.quick = {"fast": Way(500.0)}
    own = trial.Bench

    class Second(own):  # type: ignore[misc,valid-type]
        def __init__(self, *given: Any, seed: int) -> None:
            if seed != SEED:
                no_memory()
            super().__init__(*given, seed=seed)

    monkeypatch.setattr("convwright.tuning.trials.search_input.Bench", Second)
    found = search(store, Mode.FULL)
    assert found.choice is not None
    assert found.choice.candidate.id == "quick/fast"
    assert made.built.count("quick/fast") == 1


def test_a_remembered_winner_stays_where_nothing_can_be_timed(
    made: Made, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.quick = {"fast": Way(500.0)}
    first = search(store)
    monkeypatch.setattr(verify, "timed_again", no_memory)
    found = search(store, trust=Trust.VERIFY)
    assert found.choice is not None
    assert first.choice is not None
    assert found.choice.candidate == first.choice.candidate
    assert rows(found)["quick/fast"].remembered


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (BackendError("cudnnCreate: cuDNN could not allocate device memory (status 4004)"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), False),
        (RuntimeError("out of resource: shared memory, Required: 300000"), False),
        (ValueError("out of memory"), False),
        (OSError("no such file"), False),
    ],
)
def test_what_says_that_there_is_no_memory(error: Exception, short: bool) -> None:
    assert is_shortage(error) is short


def test_the_allocator_of_this_machine_says_so() -> None:
    with (
        pytest.raises(OutOfMemory, match=r"^out of memory for a very large tensor$") as caught,
        needing("a very large tensor"),
    ):
        torch.empty(1 << 55, dtype=torch.uint8)
    assert shortage(caught.value) == "out of memory for a very large tensor"
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ValueError, match=r"^other$"), needing("anything"):
        raise ValueError("other")
