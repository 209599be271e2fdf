"""PyTorch's own operators for linear, pointwise, copy and pool problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from backends.bound_right import objection_to
from convwright import flags
from convwright.backends.registry import backend
from convwright.backends.torch_native import pointwise_into
from convwright.backends.torch_native.row_functions import function_of
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.profiles import profile
from convwright.measuring.checking.data import Kind
from convwright.measuring.hardware.machine import device_facts
from kind_space import copy_problems, linear_problems, pointwise_problems, pool_problems, row_problems

CPU = device_facts("cpu")
EXACT = (DType.FP64, DType.FP32)


def plans(problem: Problem) -> list[Any]:
    member = backend("torch", problem.kind)
    offers = member.candidates(problem, CPU, Policy())
    return [member.build(each, CPU) for each in offers if isinstance(each, Candidate)]


@settings(max_examples=60)
@given(copy_problems((*EXACT, DType.FP16, DType.BF16)))
def test_copies(problem: CopyProblem) -> None:
    (plan,) = plans(problem)
    assert objection_to(plan) is None


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp8_e5m2"])
def test_copies_of_one_byte(dtype: str) -> None:
    (plan,) = plans(parse(f"copy mb2ic6ih5 nchw->nhwc dt:{dtype} pad:h=1:2 slice:c=2:5"))
    assert objection_to(plan) is None


@settings(max_examples=60)
@given(pool_problems())
def test_pools(problem: PoolProblem) -> None:
    for plan in plans(problem):
        assert objection_to(plan, [Kind.NORMAL, Kind.CHANNEL_SCALED, Kind.INFINITY, Kind.NAN]) is None


@pytest.mark.parametrize(
    "text",
    [
        "pool max mb2ic5ih8 kh3sh2ph1",
        "pool max mb2ic5ih8 kh3sh2ph1 tag:nhwc dt:bf16",
        "pool avg mb2ic5ih8 kh3sh2ph1 ceil:1 include_pad:0 tag:nhwc",
        "pool avg mb2ic5iw9 kw4pw2 divisor:3 dt:fp16",
        "pool max mb2ic5iw9 kw3dw1",
        "pool max ic2id4ih5iw6 kd4kh5kw6",
        "pool max mb2ic5ih3 kh2sh1ph1 tag:nhwc",
        "pool max mb2ic5ih1 kh2sh1ph1",
        "pool avg mb2ic1ih4 kh2 tag:nhwc",
    ],
)
def test_pools_write_where_they_are_told(text: str) -> None:
    found = {plan.candidate.algorithm: plan for plan in plans(parse(text))}
    into = found["into"]
    assert into.workspace_bytes == (8 * into.candidate.problem.y.numel if " max " in text else 0)
    for plan in found.values():
        assert objection_to(plan) is None


@pytest.mark.parametrize(
    ("text", "id_", "words"),
    [
        ("pool max ic2ih8 kh2 tag:x=nchw,y=nhwc", "into", "in the input's layout, nchw, got nhwc"),
        ("pool max ic2ih8 kh2 tag:x=512/64/8/2,y=nchw", "into", "needs an input in nchw or"),
        ("pool max ic2id8 kd2 tag:nhwc", "into", "in two dimensions, in nhwc"),
        ("pool max mb0ic2ih8 kh2", "into", "needs a non-empty output, got (0, 2, 4, 4)"),
        ("pool avg ic2id8 kd2 dt:fp16", "default", "averages volumes on a CPU only in fp64 and fp32, got fp16"),
        ("pool avg ic2id2 kd3sd1pd1", "default", "at least as large as the window, got (2, 2, 2) and (3, 3, 3)"),
    ],
)
def test_what_pytorch_cannot_pool_is_refused(text: str, id_: str, words: str) -> None:
    offers = {each.id: each for each in backend("torch", "pool").candidates(parse(text), CPU, Policy())}
    refusal = offers[f"torch/{id_}"]
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


@settings(max_examples=60)
@given(linear_problems(EXACT))
def test_matrix_products(problem: LinearProblem) -> None:
    made = plans(problem)
    assert {plan.candidate.algorithm for plan in made} >= {"default"}
    kinds = [Kind.NORMAL, Kind.CHANNEL_SCALED]
    if problem.epilogue.activation in (Activation.NONE, Activation.RELU):
        kinds += [Kind.INFINITY, Kind.NAN]  # of which PyTorch's other activations make what depends on the dtype
    for plan in made:
        assert objection_to(plan, kinds) is None


@settings(max_examples=50)
@given(pointwise_problems((DType.FP64,), casts=False))
def test_expressions_in_fp64(problem: PointwiseProblem) -> None:
    for plan in plans(problem):
        said = objection_to(plan, [Kind.NORMAL, Kind.POSITIVE])
        assert said is None or "wrong infinities" in said, plan.candidate.id


@settings(max_examples=50)
@given(row_problems((DType.FP64,), casts=False))
def test_rows_in_fp64(problem: PointwiseProblem) -> None:
    for plan in plans(problem):
        said = objection_to(plan, [Kind.NORMAL, Kind.POSITIVE])
        assert said is None or "wrong infinities" in said, plan.candidate.id


@pytest.mark.parametrize(
    "text",
    [
        'pointwise "mean(a)" mb2ic4ih5 row:hw y:nc',
        'pointwise "exp(a - max(a)) / sum(exp(a - max(a)))" mb2ic4ih5 row:c tag:nhwc',
        'pointwise "a / (sum(a) / sum(a))" mb3ic1',
        'pointwise "relu(a + b)" mb2ic4ih5 dt:fp16',
        'pointwise "a * s + b" mb2ic4ih5 tag:nhwc s:c b:nc,nchw',
        'pointwise "where(a > 0, a, 0.1 * a)" mb2ic4ih5 a:nhwc',
        'pointwise "fp16(a)" mb2ic4ih5',
        'pointwise "a" mb2ic4ih5',
        'pointwise "s + 1" mb2ic4ih5 s:c',
        'pointwise "where(a > 0, 1, 2)" 7 dt:bf16',
    ],
)
def test_expressions(text: str) -> None:
    for plan in plans(parse(text)):
        assert objection_to(plan, [Kind.NORMAL, Kind.INFINITY, Kind.NAN]) is None, plan.candidate.id


@pytest.mark.parametrize(
    ("expression", "buffers"),
    [("relu(a + b)", 0), ("a * sigmoid(a)", 0), ("(a + b) * (a - b)", 1), ("(a + 1) * ((a + 2) * (a - b))", 2)],
)
def test_steps_write_over_what_nobody_reads_any_more(expression: str, buffers: int) -> None:
    problem = parse(f'pointwise "{expression}" mb2ic4ih8')
    plan = next(each for each in plans(problem) if each.candidate.algorithm == "into")
    assert plan.workspace_bytes == buffers * 2 * 4 * 64 * 4
    assert objection_to(plan) is None


@pytest.mark.parametrize(
    ("expression", "layout", "called"),
    [
        ("relu(a * s + b)", "tag:nhwc s:c b:c", True),
        ("b + a * s", "tag:nhwc s:c", True),
        ("a * s + a * b", "tag:nhwc s:c", True),
        ("(a * s + b) * (a * s)", "tag:nhwc s:c b:c", False),  # the product is read twice
        ("a * s + b", "tag:nhwc s:n b:c", False),
        ("a * 2 + b", "tag:nhwc", False),
        ("a * s + b", "s:c b:c", False),
    ],
)
def test_a_product_and_a_sum_in_channels_last_are_one_call(
    expression: str, layout: str, called: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, found = torch.addcmul, list[int]()
    monkeypatch.setattr(torch, "addcmul", lambda *given, out: found.append(1) or own(*given, out=out))
    problem = parse(f'pointwise "{expression}" mb2ic8ih4 {layout}')
    plan = next(each for each in plans(problem) if each.candidate.algorithm == "into")
    assert objection_to(plan, [Kind.NORMAL, Kind.INFINITY, Kind.NAN]) is None
    assert bool(found) is called


def test_an_expression_is_prepared_once_and_not_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a network on a CPU many operands have new addresses in each run."""
    problem = PointwiseProblem.parse('pointwise "relu(a * b + c) * a" mb2ic4ih3 tag:nhwc b:c c:c')
    plan = next(each for each in plans(problem) if each.candidate.algorithm == "into")
    a = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    b, c = torch.randn(1, 4, 1, 1), torch.randn(1, 4, 1, 1)
    monkeypatch.setattr(pointwise_into, "steps", lambda expression: pytest.fail("prepared again"))
    assert torch.equal(plan.compute({"a": a, "b": b, "c": c}), torch.relu(torch.addcmul(c, a, b)) * a)


def test_functions_of_rows_write_where_they_are_told() -> None:
    for text, nbytes in (('"mean(a)" mb2ic4ih5 row:hw y:nc', 0), ('"(a - mean(a)) * rsqrt(mean(a * a))" mb3ic8', 256)):
        found = {plan.candidate.algorithm: plan for plan in plans(parse(f"pointwise {text}"))}
        assert found["into"].workspace_bytes == nbytes
        assert objection_to(found["into"]) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('pointwise "a + b" ic8 b:fp16', "needs all operands in one dtype, got fp16, fp32"),
        ('pointwise "where(a > 0, a, 0)" ic8', "cannot write gt"),
        ('pointwise "fp16(a) + 1" ic8', "cannot write fp16"),
        ('pointwise "a" ic8', "at least one operator"),
        ('pointwise "sum(a) + 1" mb2ic1', "rows of at least two elements"),
        ('pointwise "sum(a * a)" mb2ic8 y:n', "no larger than the output, got one of 16 elements"),
        ('pointwise "s + 1" mb2ic8 s:1', "needs an operand of the output's size"),
    ],
)
def test_what_no_function_can_write_is_refused(text: str, words: str) -> None:
    offers = {each.id: each for each in backend("torch", "pointwise").candidates(parse(text), CPU, Policy())}
    refusal = offers["torch/into"]
    assert isinstance(refusal, Refusal)
    assert words in refusal.reason


def test_a_result_is_never_an_operand() -> None:
    (plan,) = plans(parse('pointwise "a" ic8'))
    a = torch.zeros(1, 8)
    assert plan(a).data_ptr() != a.data_ptr()


def test_onednn_packs_a_weight_and_keeps_a_nan() -> None:
    problem = parse("linear mb4ic16oc8 ep:bias+relu")
    plan = next(each for each in plans(problem) if each.candidate.algorithm == "onednn")
    x, w, bias = torch.full((4, 16), torch.nan), torch.ones(8, 16), torch.zeros(8)
    assert plan.prepare(w).is_mkldnn
    assert plan(x, w, bias=bias).isnan().all()


def test_what_fuses_elsewhere_says_so() -> None:
    problem = parse("linear mb4ic16oc8 ep:bias+relu")
    offers = {each.id: each for each in backend("torch", "linear").candidates(problem, CPU, Policy())}
    fused = offers["torch/addmm-activation"]
    assert isinstance(fused, Refusal)
    assert fused.reason.startswith("fuses only on a GPU, got")
    gpu = replace(profile("h200"), torch_name="cuda")
    for text, words in (
        ("linear mb4ic16oc8 ep:bias+relu", "since the TF32 flag would change fp32"),
        ("linear mb4ic16oc8 dt:fp16 ep:bias+gelu", "fuses only bias+relu, got bias+gelu"),
    ):
        refusals = {
            each.id: each.reason
            for each in backend("torch", "linear").candidates(parse(text), gpu, Policy())
            if isinstance(each, Refusal)
        }
        assert words in refusals["torch/addmm-activation"]
        assert "computes only on a CPU" in refusals["torch/onednn"]


def test_on_a_gpu_fp32_is_there_with_tf32_and_without() -> None:
    gpu = replace(profile("h200"), torch_name="cuda")
    offers = backend("torch", "linear").candidates(parse("linear mb4ic16oc8"), gpu, Policy())
    assert [each.id for each in offers if isinstance(each, Candidate)] == [
        "torch/default[tf32=on]", "torch/default[tf32=off]",
    ]  # fmt: skip


def test_which_of_them_is_allowed_is_what_matrix_products_flag_says() -> None:
    """PyTorch's flags for convolutions and for matrix products differ by default."""
    gpu = profile("h200")
    assert not flags.matmul_tf32_allowed()
    conv, linear = (flags.completed(Policy(), DType.FP32, gpu, kind=kind).arithmetic for kind in ("conv", "linear"))
    assert conv is not None
    assert linear is not None
    assert ("tf32" in conv, "tf32" in linear) == (flags.tf32_allowed(), False)
    with flags.matmul_tf32(True):
        assert flags.matmul_tf32_allowed()
        assert "tf32" in (flags.completed(Policy(), DType.FP32, gpu, kind="linear").arithmetic or ())
    assert not flags.matmul_tf32_allowed()


NORM = "(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5)"


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize(
    "text",
    [
        '"exp(a - max(a)) / sum(exp(a - max(a)))" mb2ic4ih5 row:c tag:nhwc',
        f'"{NORM} * g + b" mb6ic5ih7iw3 row:c g:c b:c tag:nhwc',
        f'"{NORM} * g + b" mb6ic5ih7iw3 row:c g:c b:c',
        f'"{NORM} * g + b" mb6ic5ih7iw3 row:w g:w b:w',
        f'"{NORM} + b" mb3ic5ih7iw3 row:chw b:chw',
        f'"{NORM} * g + b" mb3ic5ih7iw3 row:hw g:w b:w',
    ],
)
def test_norms_and_softmax_are_functions_of_pytorchs(text: str, dtype: str) -> None:
    problem = parse(f"pointwise {text} dt:{dtype}")
    assert isinstance(problem, PointwiseProblem)
    assert function_of(problem) is not None
    plan = next(each for each in plans(problem) if each.candidate.algorithm == "default")
    assert objection_to(plan, [Kind.NORMAL, Kind.POSITIVE, Kind.INFINITY, Kind.NAN]) is None


@pytest.mark.parametrize(
    "text",
    [
        f'"relu({NORM} * g + b)" mb3ic6ih7iw3 row:chw groups:3 g:c b:c',
        f'"silu({NORM} * g + b)" mb3ic6ih7iw3 row:chw groups:3 g:c b:c tag:nhwc',
        f'"2 - ({NORM} * g + b + a)" mb3ic6iw9 row:cw groups:2 g:c b:c',
        f'"{NORM} * g" mb3ic5ih7iw3 row:hw g:c tag:nhwc',
        f'"{NORM}" mb3ic5ih7iw3 row:chw',
    ],
)
def test_norms_of_channels_are_functions_of_pytorchs(text: str) -> None:
    """Which make infinities of some rows that hold one, where they should make NaN."""
    for dtype in ("fp32", "fp64"):
        problem = parse(f"pointwise {text} dt:{dtype}")
        assert isinstance(problem, PointwiseProblem)
        assert function_of(problem) is not None
        plan = next(each for each in plans(problem) if each.candidate.algorithm == "default")
        assert objection_to(plan, [Kind.NORMAL, Kind.POSITIVE, Kind.NAN]) is None


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_layer_norm_rounds_once(dtype: str) -> None:
    plan = plans(parse(f'pointwise "{NORM} * g + b" mb6ic5ih7iw3 row:c g:c b:c tag:nhwc dt:{dtype}'))[0]
    assert objection_to(plan, [Kind.NORMAL, Kind.POSITIVE, Kind.INFINITY, Kind.NAN]) is None


@pytest.mark.parametrize(
    "text",
    [
        f'"{NORM} * g" mb3ic5ih7iw3 row:chw g:c,fp32 dt:fp16',
        '"(a - mean(a)) * rsqrt(mean(a * a) + 1e-5)" mb3ic8',
        '"exp(a - max(a)) / sum(exp(a - max(a)))" mb2ic4ih5 row:hw',
        '"mean(a)" mb2ic4ih5 row:hw y:nc',
    ],
)
def test_other_rows_are_computed_operator_by_operator(text: str) -> None:
    problem = parse(f"pointwise {text}")
    assert isinstance(problem, PointwiseProblem)
    assert function_of(problem) is None
