"""The explanation: what would run and by how much, why nothing else would, what is not known, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from convwright.core.candidate import Refusal
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval
from convwright.core.policy import Objective, Policy
from convwright.core.profiles import profile
from convwright.report.explain import explain
from convwright.report.words.origin import Memory
from convwright.settings import Mode
from convwright.store.quarantine import Quarantined
from convwright.store.stored import Stored
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings
from tuning.made import CPU, PROBLEM, WRONG, candidate, finding

NOW = 1.7e9
COMMAND = "convwright find mb2ic4ih8oc4kh3ph1 --device cpu"
TORCH, GEMM, FFT = "torch/default", "reference/gemm", "cudnn/fft"


def known(name: str, time_us: float, **about: Any) -> Finding:
    """What the store remembers of a candidate, timed in a full search."""
    made = finding(name, time_us, **about)
    assert made.measurement is not None
    conditions = (("torch", "2.13"), ("mode", "full"))
    return replace(made, measurement=replace(made.measurement, conditions=conditions), remembered=True)


def stored(fingerprint: str = "torch 2.13", age_s: float = 0.0) -> Stored:
    return Stored(fingerprint, None, None, NOW - age_s)


def told(
    rows: Sequence[Finding],
    *,
    policy: Policy = Policy(),
    device: DeviceFacts = CPU,
    refusals: tuple[Refusal, ...] = (),
    memory: dict[str, Stored] | None = None,
    quarantined: dict[str, Quarantined] | None = None,
) -> dict[str, str]:
    """The sections by heading. The first row is PyTorch's own call if it has that name."""
    baseline = next((row for row in rows if row.candidate.id == TORCH), None)
    verdicts = choose(rows, baseline, policy)
    found = Findings(PROBLEM, device, policy, Mode.HEURISTIC, verdicts, refusals, baseline)
    kept = {row.candidate.id: stored() for row in rows if row.remembered} if memory is None else memory
    sections = explain(found, Memory(kept, quarantined or {}, NOW), command=COMMAND)
    assert len({section.heading for section in sections}) == len(sections)
    return {section.heading: "\n".join(section.lines) for section in sections}


RUNS, NOT, FORBIDDEN, NEVER = (
    "What would run", "Why not the others", "Not allowed, or failed", "No stored time, the most promising first",
)  # fmt: skip


def test_the_winner_its_margin_and_its_cost() -> None:
    rows = [
        known(TORCH, 100.0),
        known(GEMM, 50.0, workspace_bytes=4096, prepare_us=3.0),
        known(FFT, 75.0),
    ]
    text = told(rows)[RUNS]
    assert text.startswith("reference/gemm, the winner: 1.89x as fast as PyTorch's own call.")
    assert "PyTorch's own call, torch/default, takes 100.00 µs." in text
    assert "The next best is cudnn/fft with 75.00 µs." in text
    assert "A call takes 53.00 µs ± 0.1 %: device 50.00 µs, packing the weight 3.00 µs." in text
    assert "It computes in fp32, needs 4,096 bytes of workspace and is deterministic." in text
    assert "normally distributed data is 1.0e-07; at most 2x PyTorch's is allowed." in text
    assert "The objective is device time" in text
    assert "wide" not in text


def test_the_physical_limit_stands_beside_the_time_where_it_is_known() -> None:
    assert "at least" not in told([known(TORCH, 100.0)])[RUNS]
    text = told([known(TORCH, 100.0)], device=replace(profile("h200"), torch_name="cuda:0"))[RUNS]
    assert "The device needs at least 0.000973 µs: this is 0 % of its peak." in text


def test_pytorchs_own_call_wins_a_tie_and_it_is_said_what_one_is() -> None:
    rows = [known(TORCH, 100.0), known(GEMM, 99.5), known(FFT, 200.0)]
    sections = told(rows)
    assert "torch/default, the winner: nothing allowed is surely faster" in sections[RUNS]
    assert "A tie is a difference of up to 2 %" in sections[RUNS]
    assert "reference/gemm takes 99.50 µs, which is not surely better by more than a tie." in sections[RUNS]
    assert sections[NOT].splitlines() == [
        "reference/gemm: 99.50 µs; 0.99x the winner's time, but not surely better by more than a tie",
        "cudnn/fft: 200.00 µs; 2.00x the winner's time",
    ]


def test_what_is_not_sure_is_said_beside_a_winner_that_is() -> None:
    sections = told([known(TORCH, 100.0), known(GEMM, 60.0, halfwidth=0.7), known(FFT, 65.0)])
    assert "cudnn/fft, the winner: 1.54x as fast as PyTorch's own call" in sections[RUNS]
    assert "reference/gemm takes 60.00 µs, which is not surely better by more than a tie." in sections[RUNS]
    assert "The next best" not in sections[RUNS]


def test_a_wide_interval_and_a_doubt_are_told() -> None:
    torch = known(TORCH, 100.0, halfwidth=0.3)
    assert torch.measurement is not None
    text = told([replace(torch, measurement=replace(torch.measurement, doubt="the second timing took 3x as long"))])
    assert "That interval is wide: a longer measurement may choose another candidate." in text[RUNS]
    assert "Its time is in doubt: the second timing took 3x as long." in text[RUNS]


def test_constant_weights_are_packed_once() -> None:
    text = told([known(GEMM, 50.0, prepare_us=30.0)], policy=Policy(weights="constant"))[RUNS]  # type: ignore[arg-type]
    assert "A call takes 50.00 µs" in text
    assert "packing the weight 30.00 µs, once, since weights are constant" in text


def test_every_objective_is_put_in_words() -> None:
    for objective in Objective:
        row = known(TORCH, 100.0)
        assert row.measurement is not None
        row = replace(row, measurement=replace(row.measurement, energy_mj=1.0))
        assert "The objective is " in told([row], policy=Policy(objective=objective))[RUNS]


def test_who_lost_who_is_forbidden_who_failed_and_who_was_never_measured() -> None:
    rows = [
        known(TORCH, 100.0),
        known(GEMM, 120.0),
        known("cudnn/gemm", 10.0, workspace_bytes=1 << 20),
        known("cudnn/winograd", 20.0, errors=WRONG),
        Finding(candidate("cudnn/direct"), failure="failed: out of memory"),
        Finding(candidate("cudnn/fft-tiling"), note="was not measured: nothing runs in mode heuristic"),
        Finding(candidate("triton/direct"), note="about 3.0x the best at a first look"),
        Finding(candidate("cudnn/implicit-gemm", workspace_bytes=1 << 30), note="was not measured: nothing runs"),
    ]
    sections = told(rows, policy=Policy(max_workspace_bytes=1000))
    assert sections[NOT] == "reference/gemm: 120.00 µs; 1.20x the winner's time"
    forbidden = dict(line.split(": ", 1) for line in sections[FORBIDDEN].splitlines())
    assert forbidden["cudnn/gemm"] == "10.00 µs; needs 1,048,576 bytes of workspace, 1,000 are allowed"
    assert "relative L2 error on normal data" in forbidden["cudnn/winograd"]
    assert forbidden["cudnn/direct"] == "failed: out of memory"
    assert "of workspace, 1,000 are allowed" in forbidden["cudnn/implicit-gemm"]
    assert sections[NEVER].splitlines() == ["cudnn/fft-tiling", "triton/direct: about 3.0x the best at a first look"]


def test_what_was_only_timed_is_not_forbidden() -> None:
    shaken = known("cudnn/fft", 30.0)
    assert shaken.measurement is not None
    shaken = replace(shaken, measurement=replace(shaken.measurement, doubt="unstable: 2 rounds: wait"))
    sections = told(
        [known(TORCH, 100.0), known(GEMM, 10.0, errors=()), known("cudnn/gemm", 20.0, errors=WRONG), shaken]
    )
    assert sections["Timed, but left open"].splitlines() == [
        "reference/gemm: 10.00 µs; was timed, but its error was not looked at, since others are faster",
        "cudnn/fft: 30.00 µs; unstable: 2 rounds: wait",
    ]
    assert sections[FORBIDDEN].startswith("cudnn/gemm: 20.00 µs; ")
    assert "measures everything that is allowed" in sections["To find out more"]


def test_of_many_the_first_are_named_and_the_rest_counted() -> None:
    losers = [known(f"cudnn/engine-{number}", 100.0 + number) for number in range(20)]
    unknown = [Finding(candidate(f"triton/tile-{number}")) for number in range(20)]
    refusals = tuple(Refusal(f"cudnn/classic-{number}", "needs a GPU") for number in range(20))
    sections = told([known(TORCH, 50.0), *losers, *unknown], refusals=refusals)
    assert sections[NOT].splitlines()[-1] == "and 12 more, which `convwright find` shows"
    assert sections[NOT].count("\n") == 8
    assert sections[NEVER].endswith("triton/tile-5 and 14 more")
    assert sections["Refused"].endswith("cudnn/classic-5 and 14 more: needs a GPU")


def test_where_nothing_was_measured_on_a_cpu_it_says_that_calls_never_search() -> None:
    sections = told([Finding(candidate(TORCH)), Finding(candidate(GEMM))])
    assert sections[RUNS].splitlines() == [
        "On a CPU conv2d never searches: it runs PyTorch's own call unless `find` or `tune` has found a candidate that "
        "is surely 10 % faster.",
        "The fastest is unknown: nothing was measured under the present versions.",
        "A time that other work on the machine disturbed does not count. Measure again.",
    ]
    assert sections[NEVER] == "torch/default, reference/gemm"
    assert "Where this is from" not in sections
    assert sections["To find out more"] == f"`{COMMAND}` measures everything that is allowed, for about 30 s."


def test_where_nothing_was_measured_on_a_gpu_it_says_that_the_second_call_searches() -> None:
    here = replace(profile("h200"), torch_name="cuda:0")
    said = told([Finding(candidate(TORCH)), Finding(candidate(GEMM))], device=here)[RUNS]
    assert "The second call of conv2d on such operands searches for about 200 ms" in said
    assert "On a CPU" not in said


def test_where_nothing_is_allowed_or_possible_it_says_so() -> None:
    rows = [known(TORCH, 100.0, workspace_bytes=10)]
    assert told(rows, policy=Policy(max_workspace_bytes=0))[RUNS] == "Nothing that was measured is allowed."
    assert told([])[RUNS] == "Nothing: no candidate can compute this problem on this device."


def test_where_other_work_kept_pytorchs_own_time_out_of_the_store_it_says_so() -> None:
    said = told([Finding(candidate(TORCH)), known(GEMM, 50.0)])[RUNS]
    assert said.startswith("The fastest is unknown: PyTorch's own call was not measured.")
    assert "disturbed does not count" in said


def test_a_device_not_in_this_machine_is_measured_on_one_that_has_it() -> None:
    sections = told([Finding(candidate(GEMM))], device=profile("h200"))
    assert "first call" not in sections[RUNS]
    assert "disturbed" not in sections[RUNS]
    more = sections["To find out more"]
    assert more.startswith("NVIDIA H200 is not in this machine. On a machine with it, run ")
    assert "`convwright store export FILE`" in more
    assert "`convwright store import FILE` here" in more


def test_from_when_and_under_which_conditions_the_findings_are() -> None:
    rows = [known(TORCH, 100.0), known(GEMM, 120.0)]
    assert rows[1].measurement is not None
    conditions = (("torch", "2.13"), ("mode", "quick"), ("sm_clock_mhz", "1980"))
    rows[1] = replace(rows[1], measurement=replace(rows[1].measurement, conditions=conditions))
    memory = {
        TORCH: stored(age_s=3 * 86_400),
        GEMM: stored(age_s=3600),
        "cudnn/gemm": stored("cudnn 9.18"),
        "relayout(nhwc, cudnn/gemm)": stored("cudnn 9.18"),
    }
    rows.append(Finding(candidate("cudnn/gemm")))
    lines = told(rows, memory=memory)["Where this is from"].splitlines()
    assert lines == [
        "Findings in the store that count: 2, made 2023-11-11 22:13 UTC to 2023-11-14 21:13 UTC (60 minutes ago).",
        "Conditions: torch 2.13, mode full or quick, sm_clock_mhz 1980.",
        "cudnn/gemm: does not count: it was measured with other versions (cudnn 9.18)",
        "relayout(nhwc, cudnn/gemm): is in the store, but is not offered without a full search",
    ]


def test_a_condition_of_many_values_is_cut_short() -> None:
    rows = []
    for number in range(6):
        row = known(f"cudnn/engine-{number}", 100.0)
        assert row.measurement is not None
        rows.append(replace(row, measurement=replace(row.measurement, conditions=(("clock_mhz", str(number)),))))
    assert "clock_mhz 0 or 1 or 2 or 3 other values." in told(rows)["Where this is from"]


def test_what_to_do_depends_on_what_is_missing() -> None:
    full = known(TORCH, 100.0)
    assert "Everything that is allowed has been measured" in told([full])["To find out more"]
    assert full.measurement is not None
    quick = replace(full, measurement=replace(full.measurement, conditions=(("mode", "quick"),)))
    assert "measures everything that is allowed" in told([quick])["To find out more"]


def test_a_candidate_in_quarantine_can_be_given_another_chance() -> None:
    bad = Finding(candidate(FFT), failure="is in quarantine: process 7 on here ended", remembered=True)
    entry = Quarantined("cudnn 9.19", NOW, "process 7 on here ended")
    sections = told([known(TORCH, 100.0), bad], quarantined={FFT: entry})
    assert sections[FORBIDDEN] == "cudnn/fft: is in quarantine: process 7 on here ended"
    assert "`convwright store quarantine --release ID`" in sections["To find out more"]
    assert "quarantine" not in told([known(TORCH, 100.0)], quarantined={FFT: entry})["To find out more"]


def test_an_interval_is_that_of_the_call_with_packing() -> None:
    row = known(GEMM, 50.0)
    assert row.measurement is not None
    packs = replace(row, measurement=replace(row.measurement, prepare_us=Interval(30.0, 22.0, 38.0)))
    assert "A call takes 80.00 µs ± 10.1 %: device 50.00 µs, packing the weight 30.00 µs." in told([packs])[RUNS]
