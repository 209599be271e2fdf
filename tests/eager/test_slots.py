"""What the hot path remembers never makes a later, different call wrong."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.policy import Policy, Weights
from convwright.eager import slow_path
from convwright.eager.calls import slots
from convwright.eager.calls.call import CONV2D
from convwright.tuning.session import Session
from eager.each_form import in_mode
from eager.prefer import BOTH, GEMM, RELAYOUT, TORCH, channels_last, count_calls, prefer, randn


def another(*values: int) -> tuple[int, ...]:
    """A tuple that is no other's object, as each layer has its own."""
    return values


@BOTH
def test_a_list_may_be_changed_after_the_call(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    stride, padding, dilation = [1, 1], [0, 0], [1, 1]
    for changed in (stride, padding, dilation):
        cw.conv2d(x, w, None, stride, padding, dilation)
        changed[0] = 2
        assert_close(cw.conv2d(x, w, None, stride, padding, dilation), F.conv2d(x, w, None, stride, padding, dilation))


@BOTH
def test_one_weight_may_meet_many_shapes(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    w = randn(6, 4, 3, 3)
    for _ in range(2):
        for i in range(12):
            x = randn(1 + i % 3, 4, 5 + i, 6, seed=i)
            assert_close(cw.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1))
            assert_close(cw.conv2d(x, w, stride=2), F.conv2d(x, w, stride=2))


@BOTH
def test_one_weight_may_meet_many_arguments(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = randn(2, 4, 9, 8), randn(4, 4, 3, 3), randn(4)
    residual = randn(2, 4, 9, 8)
    for _ in range(3):
        y = F.conv2d(x, w, padding=1)
        assert_close(cw.conv2d(x, w, padding=1), y)
        assert_close(cw.conv2d(x, w, b, padding=1), y + b.view(-1, 1, 1))
        assert_close(cw.conv2d(x, w, padding=1, activation="relu"), y.relu())
        assert_close(cw.conv2d(x, w, padding=1, residual=residual), y + residual)
        assert_close(cw.conv2d(x, w, padding=1, out=torch.empty_like(y)), y)
        assert_close(cw.conv2d(x, w, padding=1, residual=residual, out=torch.empty_like(y)), y + residual)


@BOTH
def test_the_data_of_a_weight_may_be_exchanged(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3, seed=1)
    others = [
        randn(6, 4, 3, 3, seed=2),
        channels_last(randn(6, 4, 3, 3, seed=3)),
        randn(5, 4, 3, 3, seed=4),
        randn(5, 4, 2, 1, seed=5),
        randn(10, 4, 2, 1, seed=6)[::2],
        randn(5, 4, 2, 1, seed=7, dtype=torch.float32),
    ]
    assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    for other in others:
        w.data = other
        x = x.to(other.dtype)
        for _ in range(2):
            assert_close(cw.conv2d(x, w), F.conv2d(x, w))


@BOTH
def test_a_new_weight_may_have_the_id_of_one_that_is_gone(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, ids = randn(2, 4, 9, 8), []
    for i in range(40):
        w = randn(6 - i % 2, 4, 3, 1 + i % 3, seed=i)
        ids.append(id(w))
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
        del w
    assert len(set(ids)) < len(ids)


@BOTH
@pytest.mark.parametrize("grad_first", [False, True])
def test_grad_mode_may_change(algorithm: str, grad_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3, grad=True)
    for i in range(6):
        with torch.set_grad_enabled((i % 2 == 0) == grad_first):
            assert cw.conv2d(x, w).requires_grad == torch.is_grad_enabled()
    with torch.inference_mode():
        assert cw.conv2d(x, w).is_inference()
    assert cw.conv2d(x, w).requires_grad


@BOTH
def test_requires_grad_may_change(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = randn(2, 4, 9, 8), randn(6, 4, 3, 3), randn(6)
    for tensor in (x, w, b, x, w, b):
        tensor.requires_grad_(not tensor.requires_grad)
        wanted = [each for each in (x, w, b) if each.requires_grad]
        y = cw.conv2d(x, w, b)
        assert y.requires_grad == bool(wanted)
        if wanted:
            ours = torch.autograd.grad(y.sum(), wanted)
            assert_close(ours, torch.autograd.grad(F.conv2d(x, w, b).sum(), wanted))


@BOTH
def test_a_bias_may_change_its_kind(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    for bias in (randn(6), randn(12)[::2], randn(1).expand(6), torch.nn.Parameter(randn(6)), None, randn(6)):
        assert_close(cw.conv2d(x, w, bias), F.conv2d(x, w, bias))


def test_a_wrong_bias_is_refused_after_right_ones() -> None:
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    cw.conv2d(x, w, randn(6), algorithm=GEMM)
    with pytest.raises(cw.BadInput, match="`bias`"):
        cw.conv2d(x, w, randn(5), algorithm=GEMM)


@pytest.mark.parametrize("mistake", [
    {"groups": 1.0}, {"groups": True}, {"stride": True}, {"stride": (True, 1)}, {"padding": [0.0, 0]},
    {"dilation": 1.0},
])  # fmt: skip
def test_what_equals_a_whole_number_is_refused_after_right_ones(mistake: dict[str, Any]) -> None:
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    with cw.algorithms(forward=GEMM), cw.enabled():
        for window in ({}, {"stride": (1, 1), "padding": [0, 0]}):
            F.conv2d(x, w, **window)
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            F.conv2d(x, w, **mistake)
        with pytest.raises(cw.BadInput, match=f"`{next(iter(mistake))}` must be"):
            cw.conv2d(x, w, **mistake)


def test_layers_alike_share_a_decision_and_compare_their_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, layers = randn(2, 4, 9, 8), [(randn(6, 4, 3, 3, seed=seed), another(2, 1)) for seed in (1, 2)]
    expected = [F.conv2d(x, w, None, stride) for w, stride in layers]
    for (w, stride), y in zip(layers, expected, strict=True):
        assert_close(cw.conv2d(x, w, None, stride), y)
    (first,), (second,) = (CONV2D.slots.latest[id(w)] for w, _ in layers)
    assert first.decision is second.decision
    assert [first.stride, second.stride] == [stride for _, stride in layers]
    assert second.stride is layers[1][1]
    assert first.stride is layers[0][1]
    monkeypatch.setattr("convwright.eager.slow_path.decide", None)
    for slot in (first, second):
        monkeypatch.setattr(slot, "same", None)  # which would be asked where the objects were others
    for (w, stride), y in zip(layers, expected, strict=True):
        assert_close(cw.conv2d(x, w, None, stride), y)


def test_what_layers_alike_are_given_as_lists_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, layers = randn(2, 4, 9, 8), [(randn(6, 4, 3, 3, seed=seed), [2, 1]) for seed in (1, 2)]
    for w, stride in [*layers, *layers]:
        assert_close(cw.conv2d(x, w, None, stride), F.conv2d(x, w, None, stride))
    (first,), (second,) = (CONV2D.slots.latest[id(w)] for w, _ in layers)
    assert first.decision is second.decision
    for w, stride in layers:
        stride[1] = 2
        assert_close(cw.conv2d(x, w, None, stride), F.conv2d(x, w, None, stride))


def test_a_layer_of_many_shapes_has_no_slots_made_for_it_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    images = [randn(1, 4, 9, width) for width in range(5, 11)]
    layers = [(randn(6, 4, 3, 3, seed=seed), another(2, 1)) for seed in (1, 2)]

    def all_once() -> None:
        for x in images:
            for w, stride in layers:
                assert_close(cw.conv2d(x, w, None, stride), F.conv2d(x, w, None, stride))

    all_once()
    monkeypatch.setattr(slots, "copy", None)
    all_once()


def test_few_slots_per_weight_are_kept() -> None:
    w = randn(6, 4, 3, 3)
    for i in range(30):
        cw.conv2d(randn(1, 4, 5 + i, 5), w)
    assert 1 < len(CONV2D.slots.latest[id(w)]) <= 4


def test_a_layer_of_many_shapes_decides_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    w, images = randn(6, 4, 3, 3), [randn(1, 4, 5 + i, 5) for i in range(30)]
    for x in images:
        cw.conv2d(x, w)
    monkeypatch.setattr("convwright.eager.slow_path.decide", None)
    for x in images:
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))


def test_few_weights_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_MOST_WEIGHTS", 5)
    x, weights = randn(1, 4, 5, 5), [randn(6, 4, 3, 3, seed=i) for i in range(23)]
    for w in weights:
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
        assert len(CONV2D.slots.latest) <= 5


@BOTH
@pytest.mark.parametrize("weights", Weights)
def test_no_tensor_is_kept_alive(algorithm: str, weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    gc.collect()
    gc.disable()
    try:
        x, w, b = randn(2, 4, 9, 8, grad=True), channels_last(randn(6, 4, 3, 3)).requires_grad_(), randn(6, grad=True)
        for _ in range(2):
            y = cw.conv2d(x, w, b, activation="relu", policy=Policy(weights=weights))
            y.sum().backward()
        gone = [weakref.ref(tensor) for tensor in (x, w, b, y)]
        del x, w, b, y
        assert [ref() for ref in gone] == [None] * 4
    finally:
        gc.enable()


@BOTH
def test_many_threads_at_once(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x = [randn(1 + i % 2, 4, 6 + i % 3, 6, seed=i) for i in range(6)]
    weights = [randn(6, 4, 3, 3, seed=i) for i in range(3)]
    expected = {(i, j): F.conv2d(x[i], weights[j], padding=1) for i in range(6) for j in range(3)}
    wrong: list[object] = []

    def work(seed: int) -> None:
        torch.set_grad_enabled(seed % 2 == 0)
        for n in range(200):
            i, j = (seed + n) % 6, (seed + n // 6) % 3
            try:
                if not torch.allclose(cw.conv2d(x[i], weights[j], padding=1), expected[i, j]):
                    wrong.append((i, j))
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_forward_mode_gradients_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w, tangent = randn(2, 4, 6, 6), randn(6, 4, 3, 3), randn(2, 4, 6, 6, seed=5)
    cw.conv2d(x, w)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        _, moved = torch.autograd.forward_ad.unpack_dual(cw.conv2d(dual, w))
    torch.testing.assert_close(moved, F.conv2d(tangent, w))


def test_a_workspace_made_in_inference_mode_serves_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, RELAYOUT)
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    with torch.inference_mode():
        cw.conv2d(x, w)
    torch.testing.assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    grown = w.clone().requires_grad_()
    cw.conv2d(x, grown).sum().backward()


def test_a_weight_with_the_id_of_one_that_is_gone_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    CONV2D.slots.forget()
    x, gone, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3), randn(6, 4, 3, 3, seed=1)
    cw.conv2d(x, gone, algorithm=GEMM)
    for memory in (CONV2D.slots.latest, CONV2D.slots._addresses):
        memory[id(w)] = memory.pop(id(gone))  # type: ignore[index]
    prefer(monkeypatch, TORCH)
    for _ in range(4):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    assert len(CONV2D.slots.latest[id(w)]) == 1
    assert id(w) in CONV2D.slots.skip_lookup


@pytest.mark.parametrize("function", [cw.conv2d, cw.conv_transpose2d])
def test_where_a_flag_of_pytorchs_is_turned_it_is_decided_anew(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Tensor]
) -> None:
    prefer(monkeypatch, GEMM)
    x, w = randn(1, 4, 6, 6), randn(4, 4, 3, 3, seed=1)
    called = count_calls(monkeypatch)
    function(x, w)
    function(x, w)
    assert len(called) == 2
    prefer(monkeypatch, TORCH)
    function(x, w)
    assert len(called) == 3, "what was decided holds"
    torch._C._set_mkldnn_enabled(False)
    try:
        function(x, w)
        assert len(called) == 3
    finally:
        torch._C._set_mkldnn_enabled(True)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_what_pytorchs_own_functions_serve_is_looked_up_once(
    activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU of which the store knows nothing. Each call with an activation went the whole way: 37 µs, now 11."""
    in_mode("quick", monkeypatch)
    monkeypatch.setattr(Session, "knows_device", lambda session, device: False)
    x, w, b = randn(1, 4, 6, 6, seed=1), randn(4, 4, 3, 3, seed=2), randn(4, seed=3)
    expected = F.conv2d(x, w, b)
    if activation is not None:
        expected = getattr(F, activation)(expected)
    with torch.no_grad():
        assert_close(cw.conv2d(x, w, b, activation=activation), expected)
        monkeypatch.setattr(slow_path, "first_call", lambda call: pytest.fail("it was met before"))
        assert_close(cw.conv2d(x, w, b, activation=activation), expected)
