"""algorithms(...): each direction by name, for the threads and the calls that are inside, and no others."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.dtype import Arithmetic
from convwright.eager.asking.ambient import contexts, current
from convwright.errors import BadInput, Refused
from eager.prefer import GEMM, count_calls, randn

NOT_HERE = "triton/implicit-gemm"


def gradients(x: Tensor, w: Tensor, function: Any = cw.conv2d) -> tuple[Tensor, ...]:
    return torch.autograd.grad(function(x, w).square().sum(), (x, w))


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_direction_by_itself(direction: str, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    ours, theirs = (cw.conv_transpose2d, F.conv_transpose2d) if transposed else (cw.conv2d, F.conv2d)
    for _ in range(3):
        called.clear()
        with cw.algorithms(**{direction: GEMM}):
            assert_close(gradients(x, w, ours), gradients(x, w, theirs))
        assert called == [direction]
        called.clear()
        assert_close(gradients(x, w, ours), gradients(x, w, theirs))
        assert called == []


def test_all_directions_with_different_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    with cw.algorithms(forward="reference/fft", backward_data=GEMM, backward_weight="torch/default"):
        assert_close(gradients(x, w), gradients(x, w, F.conv2d))
    assert called == ["backward_data"]


def test_the_innermost_context_counts_and_the_call_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)

    def computed_by_gemm(**named: str) -> bool:
        called.clear()
        assert_close(cw.conv2d(x, w, **named), F.conv2d(x, w))  # type: ignore[arg-type]
        return called == ["forward"]

    for _ in range(2):
        with cw.algorithms(forward=GEMM):
            assert computed_by_gemm()
            with cw.algorithms(forward="torch/default"):
                assert not computed_by_gemm()
                assert computed_by_gemm(algorithm=GEMM)
            with cw.algorithms():
                assert not computed_by_gemm()
            assert computed_by_gemm()
            assert not computed_by_gemm(algorithm="torch/default")
        assert not computed_by_gemm()


def test_auto_at_a_call_is_the_free_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w, out = randn(2, 4, 8, 8), randn(4, 4, 3, 3), torch.zeros(2, 4, 6, 6, dtype=torch.float64)
    expected = F.conv2d(x, w)
    for _ in range(3):
        assert_close(cw.conv2d(x, w, algorithm="auto"), expected)
        with cw.algorithms(forward=NOT_HERE):
            assert_close(cw.conv2d(x, w, algorithm="auto"), expected)
            assert_close(cw.conv2d_into(out, x, w, algorithm="auto"), expected)
        with cw.algorithms(forward=GEMM):
            called.clear()
            cw.conv2d(x, w, algorithm="auto")
            assert not called
            cw.conv2d(x, w)
            assert called
    last = cw.plan("mb2ic4ih8oc4kh3 dt:fp64", algorithm="auto", device="cpu")
    assert_close(last(x, last.prepare(w)), expected)


def test_auto_frees_one_direction_only(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    for _ in range(2):
        with cw.algorithms(forward=GEMM, backward_weight=GEMM):
            called.clear()
            y = cw.conv2d(x, w, algorithm="auto")
            assert_close(torch.autograd.grad(y.sum(), (x, w)), torch.autograd.grad(F.conv2d(x, w).sum(), (x, w)))
            assert called == ["backward_weight"]
            cw.conv2d(x, w)
            assert called == ["backward_weight", "forward"]
    assert current() is None
    assert contexts.open == 0


def test_an_exception_ends_a_context() -> None:
    with pytest.raises(ZeroDivisionError), cw.algorithms(forward=GEMM):
        _ = 1 / 0
    assert current() is None
    assert contexts.open == 0


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_one_that_refuses_is_an_error_or_left_out(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    named = {"forward": GEMM, "backward_data": GEMM, "backward_weight": GEMM} | {direction: NOT_HERE}
    for _ in range(2):
        with cw.algorithms(**named), pytest.raises(Refused, match=f"^{NOT_HERE} cannot compute .*NVIDIA") as said:  # type: ignore[arg-type]
            gradients(x, w)
        assert "\n" not in str(said.value)
        called.clear()
        with cw.algorithms(**named, strict=False):  # type: ignore[arg-type]
            assert_close(gradients(x, w), gradients(x, w, F.conv2d))
        assert set(called) == set(named) - {direction}
    unknown: dict[str, Any] = named | {direction: "magic", "strict": False}
    with pytest.raises(BadInput, match=f"^`{direction}`: no algorithm is called 'magic'; "), cw.algorithms(**unknown):
        pass


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_weight"])
def test_one_that_the_policy_forbids_is_an_error_or_left_out(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w, policy = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True), cw.Policy(max_workspace_bytes=0)
    layer = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, dtype=x.dtype))
    cw.convert(layer, choices={"0": {direction: GEMM}}, policy=policy)
    needs = r"needs [\d,]+ bytes of workspace, 0 are allowed"
    said = f"^the policy forbids {GEMM}, which {needs}: change the policy, or name another algorithm$"

    def conv(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, policy=policy)

    for _ in range(2):
        with cw.algorithms(**{direction: GEMM}), pytest.raises(Refused, match=said):
            gradients(x, w, conv)
        with pytest.raises(Refused, match=said):
            layer(x)
        with cw.algorithms(**{direction: GEMM}, strict=False):
            assert_close(gradients(x, w, conv), gradients(x, w, F.conv2d))
    assert called == []


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (cw.Policy(max_workspace_bytes=100), r"needs [\d,]+ bytes of workspace, 100 are allowed"),
        (cw.Policy(arithmetic=frozenset({Arithmetic.TF32})), "computes in fp64, allowed are tf32"),
    ],
)
def test_a_call_that_names_what_its_own_policy_forbids_is_an_error(policy: cw.Policy, reason: str) -> None:
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)
    for _ in range(2):
        with pytest.raises(Refused, match=f"^the policy forbids {GEMM}, which {reason}: "):
            cw.conv2d(x, w, algorithm=GEMM, policy=policy)
    allowed = cw.Policy(max_workspace_bytes=1 << 40, deterministic=True)
    assert_close(cw.conv2d(x, w, algorithm=GEMM, policy=allowed), F.conv2d(x, w))


def test_a_form_of_a_rewrite_that_does_not_fit_may_be_left_out_as_well() -> None:
    x, w = randn(1, 3, 9, 9), randn(2, 3, 3, 3)
    for form in ("pad-c(8, reference/gemm)", "split-batch(3, reference/gemm)"):
        with cw.algorithms(forward=form), pytest.raises(Refused, match=rf"^{re.escape(form)} cannot compute"):
            cw.conv2d(x, w)
        with cw.algorithms(forward=form, strict=False):
            assert_close(cw.conv2d(x, w), F.conv2d(x, w))


def test_what_only_pytorch_can_compute_is_refused_unless_it_may_be_left_out() -> None:
    x, w = torch.complex(randn(2, 4, 8, 8), randn(2, 4, 8, 8)).conj().imag, randn(4, 4, 3, 3)
    why = "an operand has PyTorch's negative bit set"
    with cw.algorithms(forward=GEMM), pytest.raises(Refused, match=f"^reference/gemm cannot serve .*, since {why}$"):
        cw.conv2d(x, w)
    for named in ({"forward": GEMM, "strict": False}, {"backward_data": GEMM}, {"forward": "torch/default"}):
        with cw.algorithms(**named):  # type: ignore[arg-type]
            assert_close(cw.conv2d(x, w), F.conv2d(x, w))


def test_a_result_without_elements_is_nobodys_work() -> None:
    x, w = randn(0, 4, 8, 8), randn(6, 4, 3, 3)
    with cw.algorithms(forward=GEMM):
        assert cw.conv2d(x, w).shape == (0, 6, 6, 6)
    assert cw.conv2d(x, w, algorithm=GEMM, activation="relu").shape == (0, 6, 6, 6)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"])
def test_one_image_is_served_as_a_batch_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called, rank = count_calls(monkeypatch), int(name[-2])
    x, w, b = randn(4, *(8, 7, 6)[:rank], grad=True), randn(4, 4, *(3,) * rank, grad=True), randn(4)
    ours, theirs = getattr(cw, name), getattr(F, name)
    expected = theirs(x, w, b, padding=1)
    for algorithm in (GEMM, None):
        called.clear()
        with cw.algorithms(forward=GEMM, backward_data=GEMM, backward_weight=GEMM):
            y = ours(x, w, b, padding=1, algorithm=algorithm)
            made = torch.autograd.grad(y.sum(), (x, w))
        assert_close(y, expected)
        assert_close(made, torch.autograd.grad(theirs(x, w, b, padding=1).sum(), (x, w)))
        assert len(called) == 3
    residual, out = randn(*expected.shape, seed=5), torch.zeros_like(expected)
    with torch.no_grad():
        given = {"padding": 1, "residual": residual, "activation": "relu", "algorithm": GEMM}
        assert_close(ours(x, w, b, **given), torch.relu(expected + residual))
        assert ours(x, w, b, out=out, **given) is out
    assert_close(out, torch.relu(expected + residual))


def test_one_image_in_models_as_they_are_and_into_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    layer, x = torch.nn.Conv2d(4, 6, 3, padding=1).double(), randn(4, 8, 8)
    with cw.enabled(), cw.algorithms(forward=GEMM):
        y = layer(x)
    assert called == ["forward"]
    assert_close(y, layer(x))
    for grad in (False, True):
        buffer, w = torch.zeros(10, 8, 8, dtype=torch.float64), layer.weight.detach().requires_grad_(grad)
        called.clear()
        out = buffer[4:]
        assert cw.conv2d_into(out, x, w, padding=1, algorithm=GEMM) is out
        assert called == ["forward"]
        assert_close(buffer[4:], F.conv2d(x, w, padding=1))
        if grad:
            (made,) = torch.autograd.grad(buffer.square().sum(), w)
            assert_close(made, torch.autograd.grad(F.conv2d(x, w, padding=1).square().sum(), w)[0])


def refused(call: Any) -> str:
    with pytest.raises(
        Refused, match=r"^reference/gemm cannot serve this call, which needs PyTorch's own functions"
    ) as s:
        call()
    return str(s.value).partition(", since ")[2]


def test_a_refusal_names_its_cause() -> None:
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    class Own(Tensor):
        pass

    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)

    def ours(x: Tensor, w: Tensor = w) -> Tensor:
        return cw.conv2d(x, w, algorithm=GEMM)

    ours(x)
    assert refused(lambda: torch.vmap(ours)(x[None])) == "it is inside a transform of torch.func, such as vmap"
    assert refused(lambda: torch.jit.trace(ours, (x,))) == "torch.jit traces it"
    assert refused(lambda: ours(x.as_subclass(Own))) == "an operand is a Own, and no plain tensor"
    assert refused(lambda: ours(x.to("meta"), w.to("meta"))) == "its operands are on device meta"
    with Watching():
        assert refused(lambda: ours(x)) == "a TorchFunctionMode watches PyTorch's functions"
    with forward_ad.dual_level():
        assert refused(lambda: ours(x)) == "a forward-mode gradient is taken"


def test_names_must_be_names() -> None:
    for wrong in (None, 3, ("reference/gemm",)):
        with (
            pytest.raises(BadInput, match="`backward_data` must be an algorithm's name or 'auto', got"),
            cw.algorithms(backward_data=wrong),  # type: ignore[arg-type]
        ):
            pass
    assert contexts.open == 0


def test_the_next_context_finds_what_was_decided_in_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a training loop with the context inside."""
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)
    with cw.algorithms(forward=GEMM):
        cw.conv2d(x, w)
    monkeypatch.setattr("convwright.eager.slow_path.decide", None)
    for _ in range(3):
        with cw.algorithms(forward=GEMM):
            assert_close(cw.conv2d(x, w), F.conv2d(x, w))


def test_each_thread_has_its_own() -> None:
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)
    names, begun, wrong = [GEMM, "reference/fft", "torch/default", None], threading.Barrier(4), []

    def work(name: str | None) -> None:
        begun.wait()
        for _ in range(100):
            try:
                if name is None:
                    asked = current()
                    cw.conv2d(x, w)
                else:
                    with cw.algorithms(forward=name):
                        asked = current()
                        y = cw.conv2d(x, w)
                        assert torch.allclose(y, F.conv2d(x, w))
                if (None if asked is None else asked.get(cw.Direction.FORWARD)) != name:
                    wrong.append((name, asked))
            except Exception as error:
                wrong.append((name, error))

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert contexts.open == 0


def test_tasks_have_their_own() -> None:
    x, w = randn(2, 4, 8, 8), randn(4, 4, 3, 3)
    seen: dict[str, list[str]] = {}

    async def task(name: str) -> None:
        with cw.algorithms(forward=name):
            for _ in range(3):
                await asyncio.sleep(0)
                cw.conv2d(x, w)
                asked = current()
                assert asked is not None
                seen.setdefault(name, []).append(str(asked.get(cw.Direction.FORWARD)))

    async def both() -> None:
        await asyncio.gather(task(GEMM), task("torch/default"))

    asyncio.run(both())
    assert seen == {GEMM: [GEMM] * 3, "torch/default": ["torch/default"] * 3}
    assert contexts.open == 0


def test_conv2d_into_obeys_too(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    w = randn(2, 4, 1, 1, grad=True)
    for _ in range(2):
        called.clear()
        buffer = randn(1, 6, 5, 5)
        x = buffer[:, :4].clone()
        with cw.algorithms(forward=GEMM, backward_weight=GEMM):
            cw.conv2d_into(buffer[:, 4:], buffer[:, :4], w)
        assert_close(torch.autograd.grad(buffer[:, 4:].sum(), w), torch.autograd.grad(F.conv2d(x, w).sum(), w))
        assert called == ["forward", "backward_weight"]


def test_an_algorithm_of_another_direction_is_refused_with_its_reason() -> None:
    x, w = randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    named = {"forward": GEMM, "backward_data": GEMM, "backward_weight": "torch/onednn"}
    said = "^torch/onednn cannot compute .*dir:backward_weight.*: "
    with cw.algorithms(**named), pytest.raises(Refused, match=said):  # type: ignore[arg-type]
        gradients(x, w)
