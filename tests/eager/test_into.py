"""conv2d_into: right values and gradients in a shared buffer, and an error wherever they would not be."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.backends.reference.gemm import GemmPlan
from convwright.errors import BadInput
from eager.prefer import BOTH, prefer, randn

FIRST, GROWTH, LAYERS = 3, 2, 4
CHANNELS = FIRST + GROWTH * LAYERS


def parameters() -> list[Tensor]:
    """x, then the weight and bias of each layer."""
    made = [randn(2, FIRST, 6, 5, seed=1, grad=True)]
    for i in range(LAYERS):
        made += [randn(GROWTH, FIRST + GROWTH * i, 3, 3, seed=10 + i, grad=True), randn(GROWTH, seed=i, grad=True)]
    return made


def in_a_buffer(x: Tensor, *weights: Tensor, activation: str | None, memory_format: torch.memory_format) -> Tensor:
    buffer = torch.zeros(2, CHANNELS, 6, 5, dtype=x.dtype).contiguous(memory_format=memory_format)
    buffer[:, :FIRST] = x
    for i in range(LAYERS):
        end = FIRST + GROWTH * i
        w, b = weights[2 * i : 2 * i + 2]
        cw.conv2d_into(buffer[:, end : end + GROWTH], buffer[:, :end], w, b, padding=1, activation=activation)
    return buffer


def by_concatenation(x: Tensor, *weights: Tensor, activation: str | None) -> Tensor:
    for i in range(LAYERS):
        y = F.conv2d(x, *weights[2 * i : 2 * i + 2], padding=1)
        x = torch.cat([x, y.relu() if activation else y], 1)
    return x


@BOTH
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_densely_connected_network(
    algorithm: str, activation: str | None, memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    for _ in range(2):
        given = parameters()
        ours = in_a_buffer(*given, activation=activation, memory_format=memory_format)
        theirs = by_concatenation(*given, activation=activation)
        assert_close(ours, theirs)
        dy = randn(*ours.shape, seed=7)
        assert_close(torch.autograd.grad(ours, given, dy), torch.autograd.grad(theirs, given, dy))


@BOTH
@pytest.mark.parametrize("frozen", [0, 1, 4, 7])
def test_a_densely_connected_network_with_frozen_parts(
    algorithm: str, frozen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    given = parameters()
    given[frozen].requires_grad_(False)
    wanted = [tensor for tensor in given if tensor.requires_grad]
    ours = in_a_buffer(*given, activation="relu", memory_format=torch.contiguous_format)
    theirs = by_concatenation(*given, activation="relu")
    assert_close(torch.autograd.grad(ours.square().sum(), wanted), torch.autograd.grad(theirs.square().sum(), wanted))


@BOTH
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_gradients(
    algorithm: str, activation: str | None, without: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    given = parameters()
    for _ in range(2):
        with without():
            ours = in_a_buffer(*given, activation=activation, memory_format=torch.contiguous_format)
            assert_close(ours, by_concatenation(*given, activation=activation))
        assert not ours.requires_grad


@BOTH
def test_operands_without_gradients(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    buffer, w = torch.zeros(2, 9, 6, 5, dtype=torch.float64), randn(3, 4, 3, 3)
    buffer[:, :4] = randn(2, 4, 6, 5)
    for _ in range(2):
        buffer[:, 4:].fill_(float("nan"))
        out = buffer[:, 5:8]
        assert cw.conv2d_into(out, buffer[:, :4], w, padding=1) is out
        assert_close(buffer[:, 5:8], F.conv2d(buffer[:, :4], w, padding=1))
        assert buffer[:, 4].isnan().all()
        assert buffer[:, 8].isnan().all()


@BOTH
def test_a_residual_and_an_input_of_its_own(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b, residual = (
        randn(*shape, seed=i, grad=True) for i, shape in enumerate([(2, 4, 6, 5), (3, 4, 3, 3), (3,), (2, 3, 6, 5)])
    )
    buffer = torch.zeros(2, 7, 6, 5, dtype=torch.float64)
    cw.conv2d_into(buffer[:, 2:5], x, w, b, padding=1, activation="relu", residual=residual)
    expected = (F.conv2d(x, w, b, padding=1) + residual).relu()
    assert_close(buffer[:, 2:5], expected)
    dy = randn(*buffer.shape, seed=7)
    assert_close(
        torch.autograd.grad(buffer, (x, w, b, residual), dy),
        torch.autograd.grad(expected, (x, w, b, residual), dy[:, 2:5]),
    )


@BOTH
def test_what_out_held_before_has_no_gradient(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    before, w = randn(2, 7, 6, 5, grad=True), randn(3, 4, 1, 1, grad=True)
    buffer = before * 1
    cw.conv2d_into(buffer[:, 4:], buffer[:, :4].clone(), w)
    buffer[:, 4:].sum().backward()
    assert before.grad is not None
    assert before.grad[:, 4:].abs().sum() == 0
    assert before.grad[:, :4].abs().sum() > 0


def test_a_whole_tensor_may_be_the_output() -> None:
    x, w = randn(2, 4, 6, 5, grad=True), randn(3, 4, 1, 1, grad=True)
    out = torch.empty(2, 3, 6, 5, dtype=torch.float64)
    cw.conv2d_into(out, x, w)
    expected = F.conv2d(x, w)
    assert_close(torch.autograd.grad(out.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)))


class Silent(GemmPlan):
    """Writes its result past PyTorch, as a kernel of our own does."""

    def __call__(self, *operands: Any) -> Tensor:
        *inputs, out, _workspace = (*operands, None, None)[:6]
        result = super().__call__(*inputs, None, None)
        if out is None:
            return result
        out.detach().data.numpy()[...] = result.detach().numpy()
        return out


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@BOTH
def test_a_write_counts_as_one(algorithm: str, grad: bool, silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    if silent:
        monkeypatch.setattr("convwright.backends.reference.gemm.GemmPlan", Silent)
    buffer, x, w = torch.zeros(2, 7, 6, 5, dtype=torch.float64), randn(2, 4, 6, 5), randn(3, 4, 1, 1)
    w.requires_grad_(grad)
    for _ in range(2):
        before = buffer._version
        cw.conv2d_into(buffer[:, 2:5], x, w)
        assert buffer._version > before
        assert_close(buffer[:, 2:5], F.conv2d(x, w))


@pytest.mark.parametrize("silent", [False, True])
@BOTH
def test_a_write_without_gradient_is_not_overlooked_by_a_backward(
    algorithm: str, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    if silent:
        monkeypatch.setattr("convwright.backends.reference.gemm.GemmPlan", Silent)
    buffer, w = randn(2, 4, 6, 5), randn(4, 4, 1, 1, grad=True)
    y = F.conv2d(buffer, w)
    with torch.no_grad():
        cw.conv2d_into(buffer, randn(2, 4, 6, 5, seed=3), w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def slices(buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Outputs and inputs of three channels that share memory."""
    return [
        (buffer[:, 2:5], buffer[:, :3]),
        (buffer[:, :3], buffer[:, :3]),
        (buffer[:, 2:5], buffer[:, 4:7]),
        (buffer[:, 2:5], buffer.detach()[:, :3]),
        (buffer.data[:, 2:5], buffer[:, 4:7]),
        (buffer[:, 2:5], buffer.view(2, 8, 30)[:, :3].unflatten(2, (6, 5))),
    ]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("which", range(6))
def test_an_output_over_its_input_is_refused(which: int, grad: bool) -> None:
    buffer, w = randn(2, 8, 6, 5), randn(3, 3, 1, 1, grad=grad)
    out, x = slices(buffer)[which]
    with pytest.raises(BadInput, match="`out` and `input` must not overlap"):
        cw.conv2d_into(out, x, w)


def test_the_sentence_says_where_they_overlap() -> None:
    buffer = randn(2, 8, 6, 5)
    with pytest.raises(BadInput) as said:
        cw.conv2d_into(buffer[:, 2:5], buffer[:, :3], randn(3, 3, 1, 1))
    assert "[0:2, 2:5, 0:6, 0:5]" in str(said.value)
    assert "[0:2, 0:3, 0:6, 0:5]" in str(said.value)


@pytest.mark.parametrize("grad", [False, True])
@BOTH
def test_slices_of_images_and_rows_may_lie_side_by_side(
    algorithm: str, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    w = randn(3, 3, 1, 1, grad=grad)
    for cut in (lambda b: (b[1:, :3], b[:1, :3]), lambda b: (b[:, :3, 3:], b[:, :3, :3])):
        buffer = randn(2, 3, 6, 5)
        out, x = cut(buffer)
        expected = F.conv2d(x.clone(), w)
        cw.conv2d_into(out, x, w)
        assert_close(cut(buffer)[0], expected)


@BOTH
@pytest.mark.parametrize("grad", [False, True])
def test_a_residual_that_is_the_output_is_right_or_refused(
    algorithm: str, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    buffer, x, w = randn(2, 5, 6, 5), randn(2, 4, 6, 5, seed=2), randn(3, 4, 1, 1, grad=grad)
    expected, refused = F.conv2d(x, w) + buffer[:, :3], False
    try:
        cw.conv2d_into(buffer[:, :3], x, w, residual=buffer[:, :3])
    except BadInput:
        refused = True
    if not refused:
        assert_close(buffer[:, :3], expected)


OVERWRITES = {
    "a copy": lambda buffer, w: buffer[:, :4].copy_(randn(2, 4, 6, 5, seed=5)),
    "a part of it": lambda buffer, w: buffer[:, 3, 0, 0].zero_(),
    "the whole": lambda buffer, w: buffer.zero_(),
    "conv2d_into": lambda buffer, w: cw.conv2d_into(buffer[:, 1:4], buffer[:, 4:8], w),
}


@BOTH
@pytest.mark.parametrize("write", OVERWRITES.values(), ids=OVERWRITES)
@pytest.mark.parametrize("no_grad", [False, True])
def test_an_input_that_was_written_over_is_refused_in_backward(
    algorithm: str, write: Any, no_grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    buffer, w = randn(2, 10, 6, 5), randn(3, 4, 1, 1, grad=True)
    y = cw.conv2d_into(buffer[:, 4:7], buffer[:, :4], w)
    loss = y.sum()
    with torch.set_grad_enabled(not no_grad):
        write(buffer, w)
    with pytest.raises(RuntimeError, match=r"overwritten|modified by an inplace operation"):
        loss.backward()


@BOTH
def test_an_output_that_was_written_over_is_refused_where_backward_needs_it(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    buffer, w = randn(2, 10, 6, 5), randn(3, 4, 1, 1, grad=True)
    loss = cw.conv2d_into(buffer[:, 4:7], buffer[:, :4], w, activation="relu").sum()
    buffer[:, 6].fill_(1.0)
    with pytest.raises(RuntimeError, match="overwritten"):
        loss.backward()


def test_a_write_elsewhere_by_conv2d_into_is_no_harm() -> None:
    buffer, w = randn(2, 10, 6, 5), randn(3, 4, 1, 1, grad=True)
    x = buffer[:, :4].clone()
    loss = cw.conv2d_into(buffer[:, 4:7], buffer[:, :4], w, activation="relu").sum()
    cw.conv2d_into(buffer[:, 7:], buffer[:, :4], w)
    (ours,) = torch.autograd.grad(loss, w)
    assert_close(ours, torch.autograd.grad(F.conv2d(x, w).relu().sum(), w)[0])


@pytest.mark.first_cases(2)
@BOTH
@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_kept_alive(algorithm: str, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            given = parameters()
            buffer = in_a_buffer(*given, activation="relu", memory_format=torch.contiguous_format)
            if backward:
                buffer.square().sum().backward()
            gone = [weakref.ref(tensor) for tensor in (buffer, *given)]
            del buffer, given
            assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        gc.enable()


@pytest.fixture
def compiler() -> Any:
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


def densely(x: Tensor, w: Tensor) -> Tensor:
    buffer = torch.zeros(2, 7, 6, 5, dtype=x.dtype)
    buffer[:, :4] = x
    cw.conv2d_into(buffer[:, 4:], buffer[:, :4], w, activation="relu")
    return buffer


def test_compiled(compiler: Any) -> None:
    x, w = randn(2, 4, 6, 5, grad=True), randn(3, 4, 1, 1, grad=True)
    with torch.no_grad():
        assert_close(compiler(densely)(x, w), torch.cat([x, F.conv2d(x, w).relu()], 1))


def test_compiled_with_an_input_of_its_own_and_a_gradient(compiler: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        buffer = torch.zeros(2, 7, 6, 5, dtype=x.dtype)
        cw.conv2d_into(buffer[:, 4:], x, w, activation="relu")
        return buffer[:, 3:]

    x, w = randn(2, 4, 6, 5, grad=True), randn(3, 4, 1, 1, grad=True)
    ours, theirs = compiler(function)(x, w), F.pad(F.conv2d(x, w).relu(), (0, 0, 0, 0, 1, 0))
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours.square().sum(), (x, w)), torch.autograd.grad(theirs.square().sum(), (x, w)))


def test_compiled_with_a_shared_buffer_and_a_gradient(compiler: Any) -> None:
    x, w = randn(2, 4, 6, 5, grad=True), randn(3, 4, 1, 1, grad=True)
    ours, theirs = compiler(densely)(x, w), torch.cat([x, F.conv2d(x, w).relu()], 1)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours.square().sum(), (x, w)), torch.autograd.grad(theirs.square().sum(), (x, w)))


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (torch.zeros(2, 4, 6, 5).double(), r"`out` must have the output's shape \(2, 3, 6, 5\), got \(2, 4, 6, 5\)"),
        (torch.zeros(2, 3, 6, 5), r"`out` must be torch\.float64 on cpu like `input`, got torch\.float32 on cpu"),
        (None, "NoneType"),
    ],
)
def test_bad_outputs_are_refused(out: Any, words: str) -> None:
    for grad in (False, True):
        with pytest.raises(BadInput, match=words):
            cw.conv2d_into(out, randn(2, 4, 6, 5), randn(3, 4, 1, 1, grad=grad))


def test_a_leaf_that_requires_a_gradient_cannot_be_written_to() -> None:
    out = torch.zeros(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    with pytest.raises((RuntimeError, BadInput), match="leaf"):
        cw.conv2d_into(out, randn(2, 4, 6, 5), randn(3, 4, 1, 1))


@pytest.mark.parametrize("batched", [True, False])
def test_a_write_without_a_gradient_beside_what_a_backward_pass_needs(*, batched: bool) -> None:
    w = randn(2, 2, 3, 3, grad=True)
    for harmless in (True, False):
        buffer = randn(1, 6, 8, 8) if batched else randn(6, 8, 8)
        first, second, third = (buffer.narrow(buffer.dim() - 3, start, 2) for start in (0, 2, 4))
        with cw.algorithms(forward="torch/default"):
            y = cw.conv2d_into(second, first, w, padding=1)
            with torch.no_grad():
                cw.conv2d_into(third if harmless else first, second, w, padding=1)
        if harmless:
            expected = F.conv2d(first.detach(), w, padding=1)
            assert_close(torch.autograd.grad(y.sum(), w), torch.autograd.grad(expected.sum(), w))
        else:
            with pytest.raises(RuntimeError, match="was overwritten after it was used"):
                y.sum().backward()


@pytest.mark.parametrize("activation", [None, "relu"])
def test_it_is_differentiated_again_at_each_call(activation: str | None) -> None:
    x, w = randn(2, 4, 8, 8).requires_grad_(), randn(6, 4, 3, 3, seed=1).requires_grad_()

    def twice(y: Tensor) -> tuple[Tensor, ...]:
        once = torch.autograd.grad(y.square().sum(), (x, w), create_graph=True)
        return torch.autograd.grad(once[0].square().sum() + once[1].square().sum(), (x, w))

    own = F.conv2d(x, w)
    expected = twice(own if activation is None else F.relu(own))
    for _ in range(3):
        found = twice(cw.conv2d_into(torch.zeros(2, 6, 6, 6, dtype=x.dtype), x, w, activation=activation))
        assert_close(found, expected, rtol=1e-4, atol=1e-2)


def test_within_one_buffer_each_call_says_that_it_cannot_be() -> None:
    w = randn(2, 4, 3, 3).requires_grad_()
    for _ in range(3):
        buffer = randn(2, 6, 8, 8)
        y = cw.conv2d_into(buffer[:, 4:], buffer[:, :4], w, padding=1)
        with pytest.raises(RuntimeError, match="no second derivative if its input and its output are in one buffer"):
            torch.autograd.grad(y.square().sum(), w, create_graph=True)


@pytest.mark.parametrize("grad", [False, True])
def test_an_output_over_its_weight_or_bias_is_refused(grad: bool) -> None:
    memory, x = randn(8), randn(1, 1, 2, 2, grad=grad)
    out = memory[:4].view(1, 1, 2, 2)
    with pytest.raises(BadInput, match="`out` and `weight` must not overlap"):
        cw.conv2d_into(out, x, memory[3:4].view(1, 1, 1, 1))
    with pytest.raises(BadInput, match="`out` and `bias` must not overlap"):
        cw.conv2d_into(out, x, randn(1, 1, 1, 1), memory[3:4])


@pytest.mark.parametrize("grad", [False, True])
def test_complex_numbers_are_pytorchs_with_a_gradient_and_without(grad: bool) -> None:
    x = torch.randn(1, 3, 6, 6, dtype=torch.complex64)
    w = torch.randn(4, 3, 3, 3, dtype=torch.complex64, requires_grad=grad)
    out = cw.conv2d_into(torch.zeros(1, 4, 4, 4, dtype=torch.complex64), x, w)
    assert_close(out, F.conv2d(x, w))
    assert out.requires_grad == grad
