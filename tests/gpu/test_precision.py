"""Networks in other types than their model's, on a GPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from math import prod

import pytest
import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.dtype import Arithmetic, DType
from convwright.engine.engine import Engine
from convwright.engine.optimize import optimize
from convwright.engine.running.failure import is_pytorchs
from convwright.settings import Mode
from engine.random_network import RandomNetwork
from engine.test_masks import READ, Masked

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


@pytest.fixture(autouse=True)
def _exact_float32() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def error(engine: Engine, model: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        exact = torch_api.flatten(copy.deepcopy(model).double()(x.double()))[0]
    pairs = zip(torch_api.flatten(engine(x))[0], exact, strict=True)
    return max(float((mine - right).norm() / (right.norm() or 1.0)) for mine, right in pairs)


def deep() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64))
    return model.cuda().eval(), torch.randn(8, 64, 56, 56, device="cuda")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("precision", "roundoff"), [("fp16", 2.0**-11), ("bf16", 2.0**-8)])
def test_random_networks_in_16_bits(seed: int, precision: str, roundoff: float) -> None:
    model, x = RandomNetwork(seed).cuda(), torch.randn(2, 4, 8, 8, device="cuda")
    engine = optimize(model, x, mode=Mode.HEURISTIC, precision=precision)
    assert error(engine, model, x) <= 16 * roundoff
    engine.update(model)
    assert error(engine, model, x) <= 16 * roundoff


def test_tf32_is_used_where_it_is_asked_for() -> None:
    model, x = deep()
    engine = optimize(model, x, precision="tf32")
    plain = optimize(model, x)
    coarse = {Arithmetic.TF32, Arithmetic.SCALED_FP16}
    used = [[step.candidate.leaf.arithmetic in coarse for step in each.assignment.steps if step.candidate is not None]
            for each in (engine, plain)]  # fmt: skip
    assert any(used[0])
    assert not any(used[1])
    assert error(engine, model, x) < 3e-3
    assert engine.compare(model, x).first_over is None


@pytest.mark.alone
@pytest.mark.parametrize(("allowed", "lowers"), [(2e-6, False), (5e-3, True)])
def test_mixed_keeps_to_its_error(allowed: float, lowers: bool) -> None:
    model, x = deep()
    engine = optimize(model, x, precision="mixed", max_output_error=allowed)
    assert error(engine, model, x) <= allowed
    # The mean over 56 x 56 values hides the rounding of each, so that even 2e-6 may allow maps in float16. What lies
    # after it does not: rounded to float16, it would be off by 3e-5.
    stored = [(spec.dtype, prod(spec.shape)) for spec in engine.assignment.tensors.values()]
    if lowers:
        assert DType.FP16 in {dtype for dtype, _ in stored}
    else:
        assert {dtype for dtype, count in stored if count == 8 * 64} == {DType.FP32}


def test_a_pinned_step_keeps_pytorchs_float32() -> None:
    model, x = deep()
    engine = optimize(model, x)
    own = error(model, model, x)  # type: ignore[arg-type]
    for step in engine.assignment.steps:
        if step.candidate is not None and not is_pytorchs(step):
            engine = engine.pin(step.name)
    assert all(step.candidate is None or is_pytorchs(step) for step in engine.assignment.steps)
    assert error(engine, model, x) <= 2 * own


@pytest.mark.parametrize("read", ["a choice between tensors", "a factor", "logical", "two tensors", "a weight"])
def test_masks_give_the_models_numbers(read: str) -> None:
    model, x = Masked(READ[read]).eval().cuda(), torch.randn(2, 4, 9, 9, device="cuda")
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    with torch.no_grad():
        torch.testing.assert_close(engine(x), model(x), rtol=1e-5, atol=1e-5)
