"""What a policy objects to, in words; what a policy cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convwright.core.dtype import Arithmetic, DType, native_arithmetic, permitted_arithmetic
from convwright.core.policy import DEFAULT_WORKSPACE_BYTES, Objective, Policy, Weights
from convwright.errors import BadInput

FP32_ONLY = frozenset({Arithmetic.FP32})


def objection(policy: Policy, **changed: Any) -> str | None:
    asked: dict[str, Any] = {"workspace_bytes": 0, "arithmetic": Arithmetic.FP32, "deterministic": True}
    return policy.objection(**(asked | changed))


@pytest.mark.parametrize(
    ("policy", "changed", "words"),
    [
        (Policy(max_workspace_bytes=1000), {"workspace_bytes": 1001}, "needs 1,001 bytes of workspace, 1,000"),
        (Policy(), {"workspace_bytes": DEFAULT_WORKSPACE_BYTES + 1}, "1,073,741,824 are allowed"),
        (Policy(max_workspace_bytes=0), {"workspace_bytes": 1}, "needs 1 bytes"),
        (Policy(arithmetic=FP32_ONLY), {"arithmetic": Arithmetic.TF32}, "computes in tf32, allowed are fp32"),
        (Policy(deterministic=True), {"deterministic": False}, "is not deterministic"),
        (Policy(deterministic=True), {"deterministic": None}, "is not known to be deterministic"),
    ],
)
def test_objections(policy: Policy, changed: dict[str, Any], words: str) -> None:
    assert words in (objection(policy, **changed) or "")


@pytest.mark.parametrize(
    ("policy", "changed"),
    [
        (Policy(), {"deterministic": False, "arithmetic": Arithmetic.TF32}),
        (Policy(max_workspace_bytes=1000), {"workspace_bytes": 1000}),
        (Policy(max_workspace_bytes=0), {"workspace_bytes": None}),  # only building tells
        (Policy(), {"workspace_bytes": DEFAULT_WORKSPACE_BYTES}),
        (Policy(arithmetic=FP32_ONLY, deterministic=True), {}),
    ],
)
def test_what_is_allowed(policy: Policy, changed: dict[str, Any]) -> None:
    assert objection(policy, **changed) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_workspace_bytes": -1}, "`max_workspace_bytes` .* got -1"),
        ({"max_error": 0.0}, r"`max_error` .* got 0\.0"),
        ({"max_error": float("nan")}, "`max_error` .* got nan"),
        ({"max_error": "x"}, "`max_error` .* got 'x'"),
        ({"max_error": True}, "`max_error` .* got True"),
        ({"max_workspace_bytes": float("nan")}, "`max_workspace_bytes` must be a whole number .* got nan"),
        ({"max_workspace_bytes": "x"}, "`max_workspace_bytes` must be a whole number .* got 'x'"),
        ({"max_workspace_bytes": 1.5}, r"`max_workspace_bytes` must be a whole number .* got 1\.5"),
        ({"deterministic": "x"}, "`deterministic` must be True or False, got 'x'"),
        ({"finite_inputs": None}, "`finite_inputs` must be True or False, got None"),
        ({"arithmetic": "fp32"}, "`arithmetic` must be a set of fp64, fp32, .*, or None, got 'fp32'"),
        ({"arithmetic": 5}, "`arithmetic` must be a set .* got 5"),
        ({"arithmetic": {"x"}}, "each of `arithmetic` must be one of fp64, .* got 'x'"),
        ({"arithmetic": set()}, "`arithmetic` must name at least one; give None to allow"),
        ({"weights": "frozen"}, "`weights` must be one of changing, constant, got 'frozen'"),
        ({"objective": "beauty"}, "`objective` must be one of time, device-time, .*workspace.*, got 'beauty'"),
    ],
)
def test_impossible_policies_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Policy(**arguments)


def test_words_become_members() -> None:
    policy = Policy(weights="constant", objective="workspace", arithmetic=["fp32"])  # type: ignore[arg-type]
    assert policy.arithmetic == FP32_ONLY
    assert policy.weights is Weights.CONSTANT
    assert policy.objective is Objective.WORKSPACE
    assert policy == Policy(weights=Weights.CONSTANT, objective=Objective.WORKSPACE, arithmetic=FP32_ONLY)


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("tf32", [False, True])
def test_pytorchs_own_arithmetic_is_always_permitted(dtype: DType, tf32: bool) -> None:
    assert native_arithmetic(dtype, tf32=tf32) in permitted_arithmetic(dtype, tf32=tf32)


def test_tf32_is_permitted_for_fp32_only_where_the_flag_allows_it() -> None:
    assert Arithmetic.TF32 in permitted_arithmetic(DType.FP32, tf32=True)
    assert Arithmetic.TF32 not in permitted_arithmetic(DType.FP32, tf32=False)
    assert permitted_arithmetic(DType.FP64, tf32=True) == {Arithmetic.FP64}


def test_numbers_of_two_parts_are_permitted_for_fp32_and_one_of_fp16_only_as_tf32_is() -> None:
    for tf32 in (False, True):
        permitted = permitted_arithmetic(DType.FP32, tf32=tf32)
        assert {Arithmetic.TF32X3, Arithmetic.FP16X3} <= permitted
        assert (Arithmetic.SCALED_FP16 in permitted) is tf32
        assert Arithmetic.FP16_ACC32 not in permitted
        for dtype in set(DType) - {DType.FP32}:
            assert not {Arithmetic.FP16X3, Arithmetic.SCALED_FP16} & permitted_arithmetic(dtype, tf32=tf32)


@pytest.mark.parametrize("name", ["fp16", "FP16", "float16", "half", "f16", "torch.float16"])
def test_dtypes_by_many_names(name: str) -> None:
    assert DType.parse(name) is DType.FP16


def test_roundoff_is_half_the_distance_to_the_next_number() -> None:
    torch = pytest.importorskip("torch")
    from convwright.tensors import torch_dtype

    assert DType.INT8.roundoff == 0.5
    assert torch_dtype(DType.INT8).itemsize == DType.INT8.nbytes
    for dtype in set(DType) - {DType.INT8}:
        assert torch.finfo(torch_dtype(dtype)).eps / 2 == dtype.roundoff
        assert torch_dtype(dtype).itemsize == dtype.nbytes


def test_numpys_numbers_become_pythons() -> None:
    policy = Policy(max_workspace_bytes=np.int64(5), max_error=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(policy.max_workspace_bytes), type(policy.max_error)) == (int, float)
    assert str(policy) == str(Policy(max_workspace_bytes=5, max_error=0.5))
