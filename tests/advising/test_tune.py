"""Every convolution of a model is searched for once; what was found is there for whoever comes later."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from math import inf, nan
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import convwright as cw
from backends.interpreted import passes_in_the_interpreter
from convwright.advising.tuned import Tuned, tune
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Policy
from convwright.errors import BadInput
from convwright.report.tables.tuned import print_tuned
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.session import session

X = torch.randn(1, 2, 6, 6)
BUDGET_US = 100_000.0


def model() -> nn.Sequential:
    """Two distinct problems, one of them posed by two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 4, 1))


def quickly(net: nn.Module, store: Store, **options: Any) -> Tuned:
    return tune(net, X, mode="quick", budget_us=BUDGET_US, store=store, **options)


def test_each_distinct_problem_once_with_its_layers() -> None:
    tuned = quickly(model(), Store.open(None))
    assert [(each.posed.names, each.posed.calls) for each in tuned.problems] == [(("0", "1"), 2), (("3",), 1)]
    assert tuned.mode is Mode.QUICK
    assert tuned.known == 0
    for each in tuned.problems:
        assert each.findings.choice is not None
        assert each.findings.choice.measurement is not None
        assert each.candidate == each.findings.choice.candidate
        assert each.seconds > 0
    assert tuned.workspace_bytes == max(each.workspace_bytes or 0 for each in tuned.problems)
    assert tuned.seconds >= sum(each.seconds for each in tuned.problems)


def test_the_second_time_everything_is_known() -> None:
    store = Store.open(None)
    first, second = quickly(model(), store), quickly(model(), store)
    assert second.known == len(second.problems) == 2
    for before, after in zip(first.problems, second.problems, strict=True):
        assert after.candidate == before.candidate
        assert after.findings.choice.measurement == before.findings.choice.measurement


def test_who_interrupts_loses_only_the_problem_at_hand() -> None:
    store = Store.open(None)

    def interrupt(done: int, total: int, what: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quickly(model(), store, progress=interrupt)
    resumed = quickly(model(), store)
    assert [each.known for each in resumed.problems] == [True, False]


def test_gradients_on_request() -> None:
    tuned = quickly(model(), Store.open(None), backward=True)
    directions = {(each.posed.names, str(each.posed.problem.direction)) for each in tuned.problems}
    assert directions == {
        (("0", "1"), "forward"),
        (("3",), "forward"),
        (("1",), "backward_data"),
        (("3",), "backward_data"),
        (("0", "1"), "backward_weight"),
        (("3",), "backward_weight"),
    }


def test_conv2d_finds_what_was_tuned() -> None:
    net = model()
    tune(net, X, mode="quick", budget_us=BUDGET_US)
    conv = net[0]
    found = cw.find(X, conv.weight.detach(), conv.bias.detach(), padding=1, mode="heuristic", store=session().store)
    assert found.choice is not None
    assert found.choice.remembered


def test_the_policy_is_obeyed() -> None:
    tuned = quickly(model(), Store.open(None), policy=Policy(max_workspace_bytes=0))
    assert tuned.workspace_bytes == 0


def test_without_running_candidates_are_listed() -> None:
    tuned = tune(model(), X, mode="heuristic", store=Store.open(None))
    assert [each.candidate.id for each in tuned.problems] == ["torch/default", "torch/default"]
    assert all(each.findings.choice is None for each in tuned.problems)


def test_a_device_that_is_elsewhere_and_a_model_without_memory() -> None:
    net = model().to("meta", torch.float16).to(memory_format=torch.channels_last)
    x = X.to("meta", torch.float16).contiguous(memory_format=torch.channels_last)
    tuned = tune(net, x, device="h200", plan_only=True, store=Store.open(None))
    assert (tuned.device.name, tuned.mode) == ("NVIDIA H200", Mode.HEURISTIC)
    assert all(each.findings.choice is None for each in tuned.problems)
    assert not any(each.known for each in tuned.problems)
    with pytest.raises(BadInput, match='a model on "meta" has no device: name one with `device`'):
        tune(net, x)


def test_a_plan_lists_what_the_policy_permits_and_needs_the_workspace_of_the_largest() -> None:
    tuned = tune(model(), X, device="h200", plan_only=True, backward=True, store=Store.open(None))
    for each in tuned.problems:
        listed = [verdict.finding.candidate for verdict in each.findings.verdicts]
        assert 0 < len(each.permitted) <= len(listed)
        assert each.candidate == each.permitted[0]
        assert each.workspace_bytes == each.permitted[0].workspace_bytes
        assert each.findings.verdicts[0].finding.measurement is None
    assert tuned.workspace_bytes == max(each.workspace_bytes or 0 for each in tuned.problems)
    careful = tune(
        model(), X, device="h200", plan_only=True, policy=Policy(max_workspace_bytes=0), store=Store.open(None)
    )
    for each in careful.problems:
        # Of some classic algorithms a workspace is known only where the device is.
        assert {candidate.workspace_bytes for candidate in each.permitted} <= {0, None}
        assert len(each.permitted) < len(each.findings.verdicts)
    assert careful.workspace_bytes == 0


@pytest.mark.parametrize("bound", [False, True])
def test_what_all_share_is_a_bound_where_the_largest_is(bound: bool) -> None:
    tuned = tune(model(), X, device="h200", plan_only=True, store=Store.open(None))
    first, *others = tuned.problems
    verdict = first.findings.verdicts[0]
    largest = replace(verdict.finding.candidate, workspace_bytes=10**9, workspace_is_bound=bound)
    finding = replace(verdict.finding, candidate=largest)
    findings = replace(
        first.findings, verdicts=(replace(verdict, finding=finding),), policy=Policy(max_workspace_bytes=10**9)
    )
    around = replace(tuned, problems=(replace(first, findings=findings), *others))
    assert (around.workspace_bytes, around.workspace_is_bound) == (10**9, bound)
    assert around.to_json()["workspace_is_bound"] is bound
    out = StringIO()
    print_tuned(around, Console(file=out, width=200))
    assert out.getvalue().splitlines()[-1].endswith("≤ 1 GB." if bound else ": 1 GB.")


def test_where_nothing_is_permitted_nothing_is_planned() -> None:
    tuned = tune(model(), X, plan_only=True, policy=Policy(arithmetic=("fp64",)), store=Store.open(None))
    assert [(each.permitted, each.candidate, each.workspace_bytes) for each in tuned.problems] == [((), None, None)] * 2
    assert tuned.workspace_bytes is None


def test_a_plan_measures_nothing_whatever_the_mode() -> None:
    tuned = tune(model(), X, mode="full", plan_only=True, store=Store.open(None))
    assert tuned.mode is Mode.HEURISTIC
    assert not any(v.finding.measurement for each in tuned.problems for v in each.findings.verdicts)


def test_a_device_that_is_elsewhere_is_refused_before_the_model_runs() -> None:
    def never(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("it ran")

    with pytest.raises(BadInput, match=r"NVIDIA H200 is not in this machine: use plan_only"):
        tune(never, X, device="h200", store=Store.open(None))


def test_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    tune(model(), X, mode="heuristic", store=Store.open(None), progress=lambda *step: told.append(step))
    assert [(done, total) for done, total, _ in told] == [(0, 2), (1, 2), (2, 2)]
    assert told[0][2] == "0, 1: ic2oc2ih6kh3ph1 ep:bias"


def test_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    tune(model(), X, mode="heuristic", store=Store.open(None), progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "1/2 3: " in said.err
    assert not said.err.rpartition("\r")[2]


def test_as_data() -> None:
    data = tune(model(), X, mode="heuristic", store=Store.open(None)).to_json()
    assert data["problems"][0]["layers"] == ["0", "1"]
    first = data["problems"][0]
    assert first["candidates"][0]["id"] == first["candidate"] == "torch/default"
    assert first["permitted"] <= len(first["candidates"])
    assert data["conditions"]["torch"] == torch.__version__


def test_what_is_left_out_is_said() -> None:
    net = nn.Conv2d(2, 2, 3, dtype=torch.complex64)
    tuned = tune(net, X.to(torch.complex64), mode="heuristic", store=Store.open(None))
    assert tuned.problems == ()
    assert "complex64" in dict(tuned.left_out)["Conv2d"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "off"}, "mode must be one of heuristic, predict, predict-top, quick, full, got 'off'"),
        ({"mode": "slow"}, "mode must be one of .*, got 'slow'"),
        ({"device": "gtx480"}, "gtx480"),
        *(({"budget_us": bad}, f"`budget_us` takes a finite number above 0, got {bad}") for bad in (0, -5, nan, inf)),
        ({"policy": 3}, "`policy` must be a Policy or None, got 3"),
        *(({"budget_us": 5, **asked}, "measures nothing") for asked in ({"mode": "heuristic"}, {"plan_only": True})),
        ({"progress": 3}, "`progress` must be True, False or a function .*, got 3"),
    ],
)
def test_mistakes(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        tune(model(), X, store=Store.open(None), **options)


def test_gradients_with_what_stands_ahead_of_them_where_kernels_fuse_it() -> None:
    net = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3, groups=2, bias=False))
    tuned = tune(net, X, device="h200", plan_only=True, backward=True, store=Store.open(None))
    rare = [each for each in tuned.problems if has_extended_epilogue(each.posed.problem)]
    if find_spec("triton") is None:
        assert rare == []
        return
    (fused,) = rare
    assert (fused.posed.names, str(fused.posed.problem.epilogue)) == (("0",), "bias")
    assert fused.candidate is not None
    assert fused.candidate.algorithm == "few-weights"
    out = StringIO()
    print_tuned(tuned, Console(file=out, width=200))
    (line,) = (line for line in out.getvalue().splitlines() if "backward_weight" in line and "ep:bias" in line)
    assert "triton/few-weights[" in line


@pytest.mark.slow
def test_a_tuned_model_trains_without_a_search() -> None:
    passes_in_the_interpreter("run_tuned_training.py")
