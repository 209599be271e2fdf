"""The choice: pure, so everything here is made by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Objective, Policy, Weights
from convwright.tuning.choose import Eager, Verdict, choose
from tuning.made import GOOD, WRONG, candidate, finding

TORCH = finding("torch/default", 100.0)


def winner(
    *rows: Finding, baseline: Finding | None = TORCH, policy: Policy = Policy(), eager: Eager | None = None
) -> str:
    first = choose(rows, baseline, policy, eager)[0]
    assert first.won
    assert first.allowed
    assert first.reason.startswith("the winner")
    return first.finding.candidate.id


def reasons(*rows: Finding, baseline: Finding | None = TORCH, policy: Policy = Policy()) -> dict[str, str]:
    return {verdict.finding.candidate.id: verdict.reason for verdict in choose(rows, baseline, policy)}


def test_the_fastest_wins_and_says_by_how_much() -> None:
    rows = TORCH, finding("a/slow", 80.0), finding("a/fast", 50.0)
    assert winner(*rows) == "a/fast"
    assert reasons(*rows) == {
        "a/fast": "the winner: 2.00x as fast as PyTorch's own call",
        "a/slow": "1.60x the winner's time",
        "torch/default": "2.00x the winner's time",
    }


@pytest.mark.parametrize(
    ("time_us", "halfwidth", "name"),
    [
        (99.0, 0.001, "torch/default"),  # within 2 %
        (97.0, 0.001, "a/b"),
        (97.0, 0.015, "a/b"),  # its interval reaches into the tie, and not into half of it
        (97.0, 0.02, "torch/default"),
        (98.5, 0.0, "torch/default"),
        (95.0, 0.05, "torch/default"),  # its interval reaches into the tie
        (95.0, 0.01, "a/b"),
        (100.0, 0.0, "torch/default"),
        (120.0, 0.0, "torch/default"),
    ],
)
def test_ties_go_to_pytorch(time_us: float, halfwidth: float, name: str) -> None:
    assert winner(TORCH, finding("a/b", time_us, halfwidth=halfwidth)) == name


def test_one_that_is_not_sure_does_not_stand_in_the_way_of_one_that_is() -> None:
    rows = TORCH, finding("a/b", 60.0, halfwidth=0.7), finding("a/c", 70.0), finding("a/d", 65.0, halfwidth=0.01)
    for policy in (Policy(), Policy(objective=Objective.TIME_THEN_WORKSPACE)):
        assert winner(*rows, policy=policy) == "a/d"
    for objective in (Objective.TIME, Objective.TIME_THEN_WORKSPACE):
        told = reasons(*rows, policy=Policy(objective=objective))
        assert told["a/b"] == "0.92x the winner's time, but not surely better by more than a tie"
    assert winner(*rows[:2]) == "torch/default"


def test_one_that_other_work_disturbed_is_not_chosen_and_may_be_better_all_the_same() -> None:
    disturbed = finding("a/b", 60.0, halfwidth=0.4)
    assert disturbed.measurement is not None
    row = replace(disturbed, measurement=replace(disturbed.measurement, doubt="unstable: stop other work"))
    assert reasons(TORCH, row) == {
        "torch/default": "the winner, AMBIGUOUS: a/b may be better by more than a tie, but not surely",
        "a/b": "unstable: stop other work",
    }
    wrong = replace(row, measurement=replace(disturbed.measurement, doubt="unstable", errors=WRONG))
    assert "AMBIGUOUS" not in reasons(TORCH, wrong)["torch/default"]


def test_pytorch_wins_with_a_reason() -> None:
    assert reasons(TORCH, finding("a/b", 99.0)) == {
        "torch/default": "the winner: nothing allowed is surely faster than PyTorch's own call by more than a tie",
        "a/b": "0.99x the winner's time, but not surely better by more than a tie",
    }


def test_pytorch_wins_alone_where_nothing_else_was_measured() -> None:
    untried = Finding(candidate("a/b"), note="was not tried: the budget was spent")
    assert reasons(TORCH, untried)["torch/default"] == "the winner: nothing else was measured"
    wrong = finding("a/b", 50.0, errors=WRONG)
    assert reasons(TORCH, wrong, untried)["torch/default"].startswith("the winner: nothing allowed is surely faster")


@pytest.mark.parametrize(
    ("row", "policy", "reason"),
    [
        (finding("a/b", 1.0, workspace_bytes=11), Policy(max_workspace_bytes=10), "needs 11 bytes of workspace"),
        (finding("a/b", 1.0, deterministic=False), Policy(deterministic=True), "is not deterministic"),
        (finding("a/b", 1.0, deterministic=None), Policy(deterministic=True), "is not known to be deterministic"),
        (
            finding("a/b", 1.0, arithmetic=Arithmetic.TF32),
            Policy(arithmetic=frozenset({Arithmetic.FP32})),
            "computes in tf32, allowed are fp32",
        ),
        (finding("a/b", 1.0, errors=WRONG), Policy(), "relative L2 error on normal data is 0.3"),
        (finding("a/b", 1.0, errors=()), Policy(), "its error was not looked at"),
        (finding("a/b", 1.0, errors=(KindError("normal", nan, nan),)), Policy(), "wrong infinities or NaNs"),
        (Finding(candidate("a/b"), failure="failed: out of memory"), Policy(), "failed: out of memory"),
        (Finding(candidate("a/b"), note="was not tried: the budget was spent"), Policy(), "was not tried"),
        (Finding(candidate("a/b")), Policy(), "was not measured"),
    ],
)
def test_what_is_not_allowed_never_wins(row: Finding, policy: Policy, reason: str) -> None:
    verdicts = choose([row, TORCH], TORCH, policy)
    assert verdicts[0].finding is TORCH
    assert verdicts[-1].finding is row
    assert reason in verdicts[-1].reason


def test_measured_workspace_counts_and_not_what_was_thought_before() -> None:
    row = Finding(candidate("a/b", workspace_bytes=1), finding("a/b", 1.0, workspace_bytes=1000).measurement)
    assert "needs 1,000 bytes" in reasons(TORCH, row, policy=Policy(max_workspace_bytes=100))["a/b"]


def test_errors_are_held_against_max_error() -> None:
    row = finding("a/b", 50.0, errors=(KindError("normal", 5e-7, 5.0), GOOD[1]))
    assert winner(TORCH, row) == "torch/default"
    assert winner(TORCH, row, policy=Policy(max_error=5.0)) == "a/b"
    fine = finding("a/b", 50.0, errors=(KindError("normal", 1.5e-7, 1.5), GOOD[1]))
    assert winner(TORCH, fine) == "a/b"
    assert winner(TORCH, fine, policy=Policy(max_error=1.0)) == "torch/default"


@pytest.mark.parametrize("error", [inf, nan])
@pytest.mark.parametrize("baseline", [None, Finding(candidate("torch/default"), failure="failed: out of memory")])
def test_wrong_results_do_not_win_without_a_baseline_either(error: float, baseline: Finding | None) -> None:
    row = finding("a/b", 1.0, errors=(KindError("normal", error, error),))
    verdicts = choose([row, *([baseline] if baseline else [])], baseline, Policy())
    assert not any(verdict.won or verdict.allowed for verdict in verdicts)


def test_without_a_baseline_the_fastest_wins() -> None:
    assert winner(finding("a/b", 2.0), finding("a/c", 1.0), baseline=None) == "a/c"


def test_beside_a_call_of_pytorchs_own_that_was_not_timed_nothing_wins() -> None:
    base = Finding(candidate("torch/default"), note="was not measured: nothing runs in mode heuristic")
    verdicts = choose([finding("a/b", 2.0), base, finding("a/c", 1.0)], base, Policy())
    assert not any(verdict.won for verdict in verdicts)
    assert [(verdict.finding.candidate.id, verdict.allowed) for verdict in verdicts] == [
        ("a/c", True), ("a/b", True), ("torch/default", False),
    ]  # fmt: skip
    unknown = "was timed, but PyTorch's own call was not, which may be faster"
    assert [verdict.reason for verdict in verdicts] == [unknown, unknown, base.note]

    failed = Finding(base.candidate, failure="failed: out of memory")
    assert winner(finding("a/b", 2.0), failed, finding("a/c", 1.0), baseline=failed) == "a/c"


def test_where_pytorch_itself_is_not_allowed_the_next_best_wins() -> None:
    policy = Policy(deterministic=True)
    base = finding("torch/default", 10.0, deterministic=None)
    assert winner(base, finding("a/b", 50.0), baseline=base, policy=policy) == "a/b"


def test_nothing_allowed_means_no_winner() -> None:
    verdicts = choose([Finding(candidate("a/b")), Finding(candidate("a/c"))], None, Policy())
    assert [verdict.reason for verdict in verdicts] == ["was not measured"] * 2
    assert choose([], None, Policy()) == ()


def test_the_other_tf32_setting_is_a_second_baseline_and_no_choice() -> None:
    on = finding("torch/default", 10.0, (("tf32", "on"),), arithmetic=Arithmetic.TF32)
    off = finding("torch/default", 100.0, (("tf32", "off"),))
    both = Policy(arithmetic=frozenset({Arithmetic.FP32, Arithmetic.TF32}))
    assert winner(on, off, baseline=on, policy=both) == "torch/default[tf32=on]"
    assert reasons(on, off, baseline=on, policy=both)["torch/default[tf32=off]"] == (
        "is PyTorch with its TF32 flag off, which is not so at this call"
    )
    assert winner(on, off, baseline=off, policy=both) == "torch/default[tf32=off]"


def test_packing_counts_where_weights_change() -> None:
    row = finding("a/b", 50.0, prepare_us=60.0)
    assert winner(TORCH, row) == "torch/default"
    assert winner(TORCH, row, policy=Policy(weights=Weights.CONSTANT)) == "a/b"


def with_energy(row: Finding, mj: float) -> Finding:
    assert row.measurement is not None
    return replace(row, measurement=replace(row.measurement, energy_mj=mj))


FAST, FASTER = finding("a/b", 50.0), finding("a/three-launches", 40.0)


def extra(candidate: Candidate) -> float:
    return 13.0 if "three" in candidate.id else 5.0


def test_an_eager_call_accepts_a_quarter_of_what_it_saves_as_host_time() -> None:
    assert winner(TORCH, FAST, FASTER, eager=Eager(extra_us=extra)) == "a/three-launches"  # 13 of 60
    assert winner(TORCH, FAST, FASTER, eager=Eager(extra_us=lambda each: extra(each) * 1.2)) == "a/b"  # 15.6 and 6
    assert winner(TORCH, FAST, FASTER, eager=Eager(extra_us=lambda each: 20.0)) == "torch/default"
    assert winner(TORCH, FAST, FASTER) == "a/three-launches"


def test_what_adds_nothing_on_the_host_has_to_be_surely_faster_all_the_same() -> None:
    nothing = Eager(extra_us=lambda each: -5.0)
    assert winner(TORCH, finding("a/b", 97.0), eager=nothing) == "a/b"
    assert winner(TORCH, finding("a/b", 99.0), eager=nothing) == "torch/default"


def test_on_a_cpu_a_call_wants_a_tenth() -> None:
    on_cpu = Eager(tie=0.10)
    assert winner(TORCH, finding("a/b", 93.0)) == "a/b"
    assert winner(TORCH, finding("a/b", 93.0), eager=on_cpu) == "torch/default"
    assert winner(TORCH, finding("a/b", 85.0), eager=on_cpu) == "a/b"


def test_the_host_is_weighed_only_where_time_is_what_counts() -> None:
    dear = Eager(extra_us=lambda each: 1e3)
    for objective in (Objective.DEVICE_TIME, Objective.WORKSPACE, Objective.ENERGY):
        rows = [with_energy(row, mj) for row, mj in ((FAST, 1.0), (TORCH, 2.0))]
        policy, alone = Policy(objective=objective), winner(*rows, baseline=rows[1], policy=Policy(objective=objective))
        assert winner(*rows, baseline=rows[1], policy=policy, eager=dear) == alone
    assert winner(TORCH, FAST, policy=Policy(objective=Objective.TIME_THEN_WORKSPACE), eager=dear) == "torch/default"


def test_the_reason_names_what_is_saved_and_added() -> None:
    verdicts = choose((TORCH, FAST), TORCH, Policy(), Eager(extra_us=lambda each: 20.0))
    reason = next(verdict.reason for verdict in verdicts if verdict.finding is FAST)
    assert reason.startswith("saves 50.0 µs on the device and adds 20.0 µs on the host")


def test_the_objective_may_be_workspace() -> None:
    policy = Policy(objective=Objective.WORKSPACE)
    base = finding("torch/default", 10.0, workspace_bytes=5000)
    rows = base, finding("a/small", 30.0, workspace_bytes=100), finding("a/large", 1.0, workspace_bytes=9000)
    assert winner(*rows, baseline=base, policy=policy) == "a/small"
    assert [v.finding.candidate.id for v in choose(rows, base, policy)] == ["a/small", "torch/default", "a/large"]
    none = finding("torch/default", 10.0)
    assert winner(none, *rows[1:], baseline=none, policy=policy) == "torch/default"


def test_order_is_the_winner_then_the_allowed_by_time_then_the_others_by_time_then_what_has_none() -> None:
    rows = [
        Finding(candidate("a/unknown")),
        finding("a/wrong", 1.0, errors=WRONG),
        finding("a/slow", 200.0),
        finding("a/wronger", 0.5, errors=WRONG),
        TORCH,
        finding("a/fast", 99.5),
    ]
    ranked = choose(rows, TORCH, Policy())
    assert [verdict.finding.candidate.id for verdict in ranked] == [
        "torch/default", "a/fast", "a/slow", "a/wronger", "a/wrong", "a/unknown",
    ]  # fmt: skip
    assert [verdict.call_us for verdict in ranked] == [100.0, 99.5, 200.0, 0.5, 1.0, None]


rows_by_hand = st.lists(
    st.tuples(st.floats(0.1, 1000.0), st.floats(0.0, 0.2), st.sampled_from([GOOD, WRONG, ()]), st.booleans()),
    max_size=6,
)


@given(rows_by_hand)
def test_every_row_has_one_verdict_and_a_winner_is_right_and_no_slower(
    given: list[tuple[float, float, tuple[KindError, ...], bool]],
) -> None:
    rows = [TORCH]
    for i, (time_us, halfwidth, errors, deterministic) in enumerate(given):
        known = {"halfwidth": halfwidth, "errors": errors, "deterministic": deterministic}
        rows.append(finding(f"a/{i}", time_us, **known))
    policy = Policy(deterministic=len(given) % 2 == 1)
    verdicts: tuple[Verdict, ...] = choose(rows, TORCH, policy)
    assert sorted(v.finding.candidate.id for v in verdicts) == sorted(row.candidate.id for row in rows)
    assert [v.won for v in verdicts] == [True] + [False] * (len(rows) - 1)
    best = verdicts[0].finding
    assert verdicts[0].call_us is not None
    assert verdicts[0].call_us <= 100.0
    assert best.measurement is not None
    assert best.measurement.errors == GOOD
    assert best.candidate.deterministic or not policy.deterministic


def test_finite_inputs_let_those_win_that_spread_an_infinity() -> None:
    errors = (KindError("normal", 1e-7, 1.0), KindError("infinity", inf, inf))
    torch_row = finding(
        "torch/default", 100.0, errors=(KindError("normal", 1e-7, 1.0), KindError("infinity", 0.0, 0.0))
    )
    spreads = finding("a/fft", 10.0, errors=errors)
    assert winner(torch_row, spreads, baseline=torch_row) == "torch/default"
    assert winner(torch_row, spreads, baseline=torch_row, policy=Policy(finite_inputs=True)) == "a/fft"


def test_where_pytorch_itself_goes_wrong_nobody_is_held_to_it() -> None:
    wrong = (KindError("normal", 1e-7, 1.0), KindError("nan", inf, inf))
    torch_row = finding("torch/default", 100.0, errors=wrong)
    assert winner(torch_row, finding("a/b", 10.0, errors=wrong), baseline=torch_row) == "a/b"
