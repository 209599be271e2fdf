"""oneDNN through PyTorch's own operators, held against PyTorch in float64 under the error rule."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from convwright.backends.registry import backend
from convwright.core.candidate import Candidate, Refusal
from convwright.core.epilogue import Activation
from convwright.core.error_bound import scaled_bound
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import FINITE_KINDS, NON_FINITE_KINDS
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial
from problem_space import problems

CPU = device_facts("cpu")


def offers(problem: ConvProblem) -> list[Candidate | Refusal]:
    every = backend("torch").candidates(problem, CPU, Policy())
    return [
        offer for offer in every if (offer.algorithm if isinstance(offer, Candidate) else offer.id).find("onednn") >= 0
    ]


@settings(max_examples=60, deadline=None)
@given(problems())
def test_what_it_offers_it_computes_right(problem: ConvProblem) -> None:
    for offer in offers(problem):
        if isinstance(offer, Refusal):
            continue
        check = ErrorCheck(problem, "cpu", kinds=FINITE_KINDS)
        trial = Trial(offer, Bench(problem, CPU, Mode.FULL, seed=3))
        bound = scaled_bound(offer.arithmetic, problem.dtype, problem.reduction)
        for error in check.errors(trial.run):
            # A gate such as SiLU's can amplify what goes into it a little.
            assert error.scaled_max <= 1.2 * bound, (offer.id, problem.key, error)


@pytest.mark.parametrize("activation", ["silu", "gelu", "hardswish", "relu"])
@pytest.mark.parametrize("epilogue", ["bias", "residual+bias"])
def test_activations(activation: str, epilogue: str) -> None:
    problem = ConvProblem.parse(f"mb2ic9ih11oc7kh3ph1 ep:{epilogue}+{activation}")
    found = [offer for offer in offers(problem) if isinstance(offer, Candidate)]
    assert [c.algorithm for c in found][:1] == ["onednn"]
    assert len(found) == (2 if activation == "relu" or epilogue == "bias" else 1)
    for candidate in found:
        trial = Trial(candidate, Bench(problem, CPU, Mode.FULL, seed=3))
        for error in ErrorCheck(problem, "cpu", kinds=FINITE_KINDS).errors(trial.run):
            assert error.scaled_max < 30, (candidate.id, error)


def test_a_nan_is_kept_unless_the_relu_is_fused() -> None:
    problem = ConvProblem.parse("mb2ic9ih11oc7kh3ph1 ep:bias+relu")
    errors = {
        offer.algorithm: [
            error.relative_l2
            for error in ErrorCheck(problem, "cpu", kinds=NON_FINITE_KINDS).errors(
                Trial(offer, Bench(problem, CPU, Mode.FULL, seed=3)).run
            )
        ]
        for offer in offers(problem)
        if isinstance(offer, Candidate)
    }
    assert max(errors["onednn"]) < 1e-6
    assert max(errors["onednn-fused"]) == float("inf")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic4iw9oc4kw3", "got 1"),
        ("ic4ih9oc4kh3 dt:fp64", "got fp64"),
        ("ic4ih9oc4kh3 dir:backward_weight", "got backward_weight"),
        ("ic4ih9oh9oc4kh2ph0", "(0, 1)"),
        ("ic4ih9oc4kh3 ep:residual+silu", "got silu"),
        ("ic4ih9oc4kh3", "needs an activation to fuse, got none"),
        ("g2ic4ih9oc4kh3 dt:bf16 ep:residual+relu", "in bf16 only without groups, got 2 groups"),
    ],
)
def test_a_refusal_names_the_value(text: str, words: str) -> None:
    refused = [offer for offer in offers(ConvProblem.parse(text)) if isinstance(offer, Refusal)]
    if all("instructions that oneDNN needs for bf16" in refusal.reason for refusal in refused):
        pytest.skip("this CPU has no instructions for bf16, which is why it is refused")
    assert any(words in refusal.reason for refusal in refused), refused


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("mb3ic1ih7iw5oc4kh1kw3sh1sw3", True),
        ("ic1ih5iw9oc8kh3kw1sh3", True),
        ("ic1id5ih9iw9oc8kd3kh1kw1sd3sh1sw1", True),
        ("mb3ic1ih7iw6oc4kh1kw3sh1sw3", False),  # two outputs
        ("mb3ic1ih7iw3oc4kh1kw3sh1sw1", False),
        ("mb3ic1ih7iw3oc4kh1kw1sh1sw3", False),  # one tap
        ("mb3ic2ih7iw5oc4kh1kw3sh1sw3", False),
        ("g2mb3ic2ih7iw5oc4kh1kw3sh1sw3", False),
    ],
)
def test_one_channel_and_one_strided_output_are_refused_and_their_neighbours_are_right(
    text: str, is_refused: bool
) -> None:
    problem = ConvProblem.parse(f"{text} ep:relu")
    for offer in offers(problem):
        assert isinstance(offer, Refusal) is is_refused
        if isinstance(offer, Refusal):
            assert "an output of size 1 has stride 3" in offer.reason
            continue
        check = ErrorCheck(problem, "cpu", kinds=FINITE_KINDS)
        for _ in range(5):
            for error in check.errors(Trial(offer, Bench(problem, CPU, Mode.FULL, seed=3)).run):
                assert error.scaled_max <= scaled_bound(offer.arithmetic, problem.dtype, problem.reduction)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_fused_residual_raises_nothing(dtype: str, groups: int) -> None:
    problem = ConvProblem.parse(f"g{groups}mb2ic8ih9oc8kh3ph1 dt:{dtype} ep:residual+bias+relu")
    for offer in offers(problem):
        if isinstance(offer, Candidate):
            check = ErrorCheck(problem, "cpu", kinds=FINITE_KINDS)
            for error in check.errors(Trial(offer, Bench(problem, CPU, Mode.FULL, seed=3)).run):
                bound = scaled_bound(offer.arithmetic, problem.dtype, problem.reduction, roundings=3)
                assert error.scaled_max <= bound, (offer.id, error)


def test_it_is_not_offered_where_it_is_switched_off() -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        refused = offers(ConvProblem.parse("ic4ih9oc4kh3"))
    assert [isinstance(each, Refusal) and "switched off" in each.reason for each in refused] == [True, True]


def test_every_activation_has_a_name_in_onednn() -> None:
    from convwright.backends.torch_native.onednn import ATTRIBUTE

    assert set(ATTRIBUTE) == set(Activation)


@pytest.mark.parametrize("bias", [torch.randn(8, 2)[:, 1], torch.randn(1).expand(8), torch.randn(16)[::2]])
def test_a_bias_that_does_not_lie_dense_is_read_as_it_lies(bias: torch.Tensor) -> None:
    import convwright as cw

    x, w = torch.randn(1, 3, 16, 16), torch.randn(8, 3, 3, 3)
    for activation in (None, "relu"):
        expected = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), padding=1)
        expected = expected if activation is None else expected.relu()
        for _ in range(2):
            y = cw.conv2d(x, w, bias, padding=1, algorithm="torch/onednn", activation=activation)
            torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_call_packs_the_weight_and_a_constant_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import convwright as cw
    from convwright.backends.torch_native.onednn import OneDnnPlan

    packed: list[int] = []
    own = OneDnnPlan.prepare
    monkeypatch.setattr(OneDnnPlan, "prepare", lambda self, weight: packed.append(1) or own(self, weight))
    x, w = torch.randn(2, 3, 17, 16), torch.randn(8, 3, 3, 3)
    for policy, more in ((None, 3), (cw.Policy(weights="constant"), 0)):
        cw.conv2d(x, w, padding=1, algorithm="torch/onednn", policy=policy)
        before = len(packed)
        for _ in range(3):
            cw.conv2d(x, w, padding=1, algorithm="torch/onednn", policy=policy)
        assert len(packed) - before == more
