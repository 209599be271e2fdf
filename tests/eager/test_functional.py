"""conv2d is F.conv2d: over argument forms, layouts and gradients, through PyTorch's own call and through candidates."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput, Refused
from eager.prefer import GEMM, RELAYOUT, TORCH, channels_last, count_calls, prefer, randn

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 4, 9, 8), (6, 4, 3, 3), {}),
    "pointwise": ((2, 4, 5, 6), (6, 4, 1, 1), {}),
    "filter-as-large-as-input": ((2, 4, 3, 5), (6, 4, 3, 5), {}),
    "stride-int": ((2, 4, 9, 8), (6, 4, 3, 3), {"stride": 2}),
    "stride-tuple": ((2, 4, 9, 8), (6, 4, 3, 3), {"stride": (2, 1)}),
    "stride-list": ((2, 4, 9, 8), (6, 4, 3, 3), {"stride": [1, 3]}),
    "stride-one-for-all": ((2, 4, 9, 8), (6, 4, 3, 3), {"stride": [2]}),
    "stride-beyond-filter": ((2, 4, 9, 8), (6, 4, 1, 2), {"stride": (3, 4)}),
    "padding-int": ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": 1}),
    "padding-tuple": ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": (0, 2)}),
    "padding-list": ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": [2, 1]}),
    "padding-beyond-filter": ((2, 4, 3, 3), (6, 4, 2, 2), {"padding": 3}),
    "same": ((2, 4, 9, 8), (6, 4, 3, 5), {"padding": "same"}),
    "same-even": ((2, 4, 9, 8), (6, 4, 4, 2), {"padding": "same"}),
    "same-even-dilated": ((2, 4, 9, 8), (6, 4, 2, 3), {"padding": "same", "dilation": (3, 2)}),
    "valid": ((2, 4, 9, 8), (6, 4, 3, 3), {"padding": "valid"}),
    "dilation": ((2, 4, 9, 8), (6, 4, 3, 3), {"dilation": 2, "padding": 1}),
    "dilation-tuple": ((2, 4, 9, 8), (6, 4, 3, 2), {"dilation": (1, 3)}),
    "groups": ((2, 4, 9, 8), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 4, 9, 8), (4, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}),
    "depthwise-multiplied": ((2, 3, 9, 8), (6, 1, 3, 3), {"groups": 3}),
    "one-image": ((1, 4, 9, 8), (6, 4, 3, 3), {}),
    "one-channel": ((2, 1, 9, 8), (1, 1, 3, 3), {"padding": 1}),
    "everything": (
        (3, 6, 11, 10),
        (9, 2, 3, 2),
        {"stride": (2, 1), "padding": (3, 1), "dilation": (1, 2), "groups": 3},
    ),
}
ALGORITHMS = [TORCH, GEMM, RELAYOUT]


def plain(x: Tensor, w: Tensor, b: Tensor | None, rest: dict[str, Any]) -> Tensor:
    rest = dict(rest)
    activation, residual = rest.pop("activation", None), rest.pop("residual", None)
    y = F.conv2d(x, w, b, **rest)
    if residual is not None:
        y = y + residual
    return y.relu() if activation == "relu" else y


def both(operands: list[Tensor], call: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The result and all gradients, of ours and of PyTorch's function on equal operands."""
    made = []
    for function in (lambda *a: cw.conv2d(*a[:3], **a[3]), plain):
        leaves = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in operands]
        y = call(function, *leaves)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        dy = randn(*y.shape, seed=9, dtype=y.dtype)
        made.append([y, *(torch.autograd.grad(y, wanted, dy) if wanted else [])])
    return made[0], made[1]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES)
def test_forms_of_arguments(case: str, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x_shape, w_shape, rest = CASES[case]
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    operands = [randn(*x_shape, seed=1, grad=True), randn(*w_shape, seed=2, grad=True), randn(w_shape[0], grad=True)]
    for bias in (False, True):
        for _ in range(2):  # the second call takes the short way
            ours, theirs = both(operands[: 2 + bias], lambda f, x, w, b=None, rest=rest: f(x, w, b, rest))
            assert_close(ours, theirs)
    assert called.count("forward") == (0 if algorithm == TORCH else 4)
    assert called.count("backward_weight") == (0 if algorithm == TORCH else 4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("bias", "residual", "relu"), list(product((False, True), repeat=3)))
def test_epilogues(algorithm: str, bias: bool, residual: bool, relu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    operands = [randn(2, 4, 9, 8, seed=1, grad=True), randn(6, 4, 3, 3, seed=2, grad=True)]
    operands += [randn(6, seed=3, grad=True)] * bias + [randn(2, 6, 9, 8, seed=4, grad=True)] * residual

    def call(function: Any, x: Tensor, w: Tensor, *others: Tensor) -> Tensor:
        left = [*others]
        b = left.pop(0) if bias else None
        rest = {"padding": 1, "activation": "relu" if relu else None, "residual": left.pop(0) if residual else None}
        result: Tensor = function(x, w, b, rest)
        return result

    for _ in range(2):
        assert_close(*both(operands, call))


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
@pytest.mark.parametrize("needs", list(product((False, True), repeat=3)))
def test_gradients_that_are_wanted_and_no_others(
    algorithm: str, needs: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    shapes = ((2, 4, 9, 8), (6, 4, 3, 3), (6,))
    operands = [randn(*shape, seed=i, grad=needs[i]) for i, shape in enumerate(shapes)]
    ours, theirs = both(operands, lambda f, x, w, b: f(x, w, b, {}))
    assert_close(ours, theirs)
    assert ours[0].requires_grad == any(needs)
    if algorithm == GEMM:
        assert called.count("forward") == 1
        assert called.count("backward_data") == needs[0]
        assert called.count("backward_weight") == needs[1]


def offset(tensor: Tensor) -> Tensor:
    """The same values in a slice that begins inside a larger buffer."""
    n, c, *size = tensor.shape
    buffer = tensor.new_full((n + 1, c + 3, *size), float("nan"))
    return buffer[1:, 2 : 2 + c].copy_(tensor)


def transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(2, 3).contiguous().transpose(2, 3)


def every_other(tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(2, 3)[..., ::2]


def expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape)


LAYOUTS = [torch.Tensor.contiguous, channels_last, offset, transposed, every_other, expanded]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("x_as", "w_as"), list(product(LAYOUTS, LAYOUTS[:4])), ids=lambda f: f.__name__)
def test_memory_layouts(x_as: Any, w_as: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = x_as(randn(2, 4, 9, 8, seed=1)), w_as(randn(6, 4, 3, 3, seed=2))
    for _ in range(2):
        ours, theirs = cw.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1)
        assert_close(ours, theirs)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("x_as", "w_as"), list(product(LAYOUTS[:4], LAYOUTS[:2])), ids=lambda f: f.__name__)
@pytest.mark.parametrize("x_shape", [(2, 4, 9, 8), (2, 1, 9, 8), (1, 4, 1, 1)])
def test_results_lie_in_memory_as_pytorchs_do(
    x_shape: tuple[int, ...], x_as: Any, w_as: Any, dtype: torch.dtype, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    x, w = x_as(randn(*x_shape, dtype=dtype)), w_as(randn(6, x_shape[1], 3, 3, dtype=dtype))
    ours, theirs = cw.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1)
    assert_close(ours, theirs)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        assert ours.is_contiguous(memory_format=memory_format) == theirs.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
def test_gradients_of_channels_last_tensors(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    operands = [channels_last(randn(2, 4, 9, 8, seed=1)), channels_last(randn(6, 4, 3, 3, seed=2))]
    ours, theirs = both([tensor.requires_grad_() for tensor in operands], lambda f, x, w: f(x, w, None, {}))
    assert_close(ours, theirs)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
def test_a_gradient_may_come_in_any_layout(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 9, 8, seed=1, grad=True), randn(6, 4, 3, 3, seed=2, grad=True)
    made = []
    for function in (cw.conv2d, F.conv2d):
        y = function(x, w)
        loss = (y.sum(), channels_last(y).square().sum(), y.transpose(2, 3).contiguous().mul(3).sum())
        made.append([torch.autograd.grad(each, (x, w), retain_graph=True) for each in loss])
    assert_close(*made)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
@pytest.mark.parametrize("shape", [(0, 4, 9, 8), (4, 9, 8)])
def test_empty_batches_and_single_images(
    shape: tuple[int, ...], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    operands = [randn(*shape, seed=1, grad=True), randn(6, 4, 3, 3, seed=2, grad=True), randn(6, grad=True)]
    for rest in ({}, {"activation": "relu", "padding": 1}):
        ours, theirs = both(operands, lambda f, x, w, b, rest=rest: f(x, w, b, rest))
        assert_close(ours, theirs)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
def test_weights_of_modules(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    layer, x = nn.Conv2d(4, 6, 3, padding=1).double(), randn(2, 4, 9, 8)
    y = cw.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    assert_close(y, layer(x))
    y.square().sum().backward()
    ours = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x).square().sum().backward()
    assert_close(ours, [parameter.grad for parameter in layer.parameters()])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("out_as", LAYOUTS[:4])
def test_out_takes_the_result(
    algorithm: str, out_as: Any, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = randn(2, 4, 9, 8), randn(6, 4, 3, 3), randn(6)
    for _ in range(2):
        out = out_as(torch.full((2, 6, 9, 8), float("nan"), dtype=torch.float64))
        y = cw.conv2d(x, w, b, padding=1, activation=activation, out=out)
        assert y.data_ptr() == out.data_ptr()
        assert_close(out, plain(x, w, b, {"padding": 1, "activation": activation}))


def test_a_residual_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for algorithm in ALGORITHMS:
        prefer(monkeypatch, algorithm)
        residual = randn(2, 6, 7, 6)
        before = residual.clone()
        cw.conv2d(randn(2, 4, 9, 8), randn(6, 4, 3, 3), residual=residual, activation="relu")
        assert torch.equal(residual, before)


@pytest.mark.parametrize("wants", ["x", "w", "residual"])
def test_out_is_refused_where_a_gradient_is_wanted(wants: str) -> None:
    x, w, residual = (randn(*shape) for shape in ((2, 4, 9, 8), (6, 4, 3, 3), (2, 6, 7, 6)))
    {"x": x, "w": w, "residual": residual}[wants].requires_grad_()
    out = torch.empty_like(residual)
    with pytest.raises(BadInput, match=r"`out` cannot be used where a gradient is needed: use torch\.no_grad\(\)"):
        cw.conv2d(x, w, residual=residual, out=out)
    with torch.no_grad():
        assert_close(cw.conv2d(x, w, residual=residual, out=out), F.conv2d(x, w) + residual)
    with pytest.raises(BadInput, match="`out`"):
        cw.conv2d(x, w, residual=residual, out=out)


def test_an_algorithm_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    for _ in range(2):
        assert_close(cw.conv2d(x, w, algorithm=GEMM), F.conv2d(x, w))
    assert called == ["forward"] * 2
    cw.conv2d(x, w)
    assert called == ["forward"] * 2


def test_an_algorithm_that_cannot() -> None:
    x, w = randn(2, 4, 9, 8, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)
    for _ in range(2):
        with pytest.raises(Refused, match=r"cudnn/winograd cannot compute .*NVIDIA"):
            cw.conv2d(x, w, algorithm="cudnn/winograd")
    for given in (x, x[:1].expand(2, 4, 9, 8)):  # which overlaps itself, so no gradient can be written to it
        with pytest.raises(BadInput, match="no algorithm here is called 'magic'"):
            cw.conv2d(given, w, algorithm="magic")


def test_the_latest_choice_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cw.conv2d(randn(2, 4, 9, 8), randn(6, 4, 3, 3), algorithm=GEMM)
    last = cw.last_choice()
    assert last is not None
    assert last.candidate.id == GEMM
    assert last.candidate.problem.y.shape == (2, 6, 7, 6)


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"weight": randn(6, 4, 3, 3, dtype=torch.float32)}, ["`weight`", "torch.float64", "got torch.float32"]),
    ({"weight": randn(6, 3, 3, 3)}, ["`weight`", "(=4)", "got 3"]),
    ({"weight": randn(6, 4, 3)}, ["(N, C, H, W)", "(2, 4, 9, 8)", "(6, 4, 3)"]),
    ({"weight": None}, ["`weight` must be a tensor", "NoneType"]),
    ({"weight": [[1.0]]}, ["`weight` must be a tensor", "list"]),
    ({"input": "x"}, ["`input` must be a tensor", "str"]),
    ({"bias": randn(5)}, ["`bias`", "(6,)", "got (5,)"]),
    ({"bias": randn(6, dtype=torch.float16)}, ["`bias`", "torch.float16"]),
    ({"bias": randn(1, 6)}, ["`bias`", "(1, 6)"]),
    ({"input": randn(4), "weight": randn(4)}, ["(N, C, H, W)", "(4,)"]),
    ({"stride": 0}, ["`stride`", "at least 1"]),
    ({"stride": (1, 2, 3)}, ["`stride`", "(1, 2, 3)"]),
    ({"stride": "2"}, ["`stride`", "'2'"]),
    ({"padding": -1}, ["`padding`", "-1"]),
    ({"padding": "full"}, ["`padding`", "'same'", "'full'"]),
    ({"padding": "same", "stride": 2}, ["padding='same' needs stride 1", "(2, 2)"]),
    ({"dilation": 9}, ["19 elements", "only 9"]),
    ({"groups": 3}, ["`in_channels` (=4)", "`groups` (=3)"]),
    ({"activation": "tanh"}, ["activation", "relu", "'tanh'"]),
    ({"residual": randn(2, 6, 9, 8)}, ["`residual`", "(2, 6, 7, 6)", "(2, 6, 9, 8)"]),
    ({"out": torch.empty(2, 6, 9, 8).double()}, ["`out`", "(2, 6, 7, 6)", "(2, 6, 9, 8)"]),
    ({"out": torch.empty(2, 6, 7, 6)}, ["`out`", "torch.float32"]),
    ({"input": randn(2, 4, 5, 9, 8), "weight": randn(6, 4, 3, 3, 3)}, ["(2, 4, 5, 9, 8)"]),
    ({"input": randn(2, 4, 9), "weight": randn(6, 4, 3)}, ["(2, 4, 9)"]),
]  # fmt: skip


@pytest.mark.parametrize("function", [cw.conv2d, cw.conv_transpose2d])
@pytest.mark.parametrize("algorithm", [5, "", []])
def test_an_algorithm_is_asked_for_by_its_id(function: Any, algorithm: Any) -> None:
    for _ in range(2):
        with pytest.raises(BadInput, match=r"`algorithm` must be an algorithm's id, .* got") as said:
            function(randn(2, 4, 9, 8), randn(4, 4, 3, 3), algorithm=algorithm)
        assert str(said.value).endswith(repr(algorithm))


@pytest.mark.parametrize("policy", ["x", 3])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    out = torch.empty(2, 6, 7, 6, dtype=torch.float64)
    with pytest.raises(BadInput, match=f"^`policy` must be a Policy or None, got {policy!r}$"):
        cw.conv2d(randn(2, 4, 9, 8), randn(6, 4, 3, 3), policy=policy, out=out)


@pytest.mark.parametrize("algorithm", [None, GEMM])
@pytest.mark.parametrize(("changed", "words"), BAD, ids=[" ".join(words)[:50] for _, words in BAD])
def test_bad_input_is_one_sentence(changed: dict[str, Any], words: list[str], algorithm: str | None) -> None:
    given: dict[str, Any] = {"input": randn(2, 4, 9, 8), "weight": randn(6, 4, 3, 3)}
    with pytest.raises(BadInput) as refused:
        cw.conv2d(**(given | changed), algorithm=algorithm)
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("algorithm", [None, "reference/gemm"])
def test_a_residual_and_a_bias_may_lie_in_memory_as_they_like(algorithm: str | None) -> None:
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    residual = randn(2, 6, 7, 6).to(memory_format=torch.channels_last)
    for given in (residual, residual.contiguous(), residual[:1].expand(2, -1, -1, -1)):
        for bias in (randn(12)[::2], randn(1).expand(6)):
            expected = F.conv2d(x, w, bias) + given
            for _ in range(2):
                assert_close(cw.conv2d(x, w, bias, residual=given, algorithm=algorithm), expected)


def test_what_cannot_be_kept_is_refused_and_not_dropped() -> None:
    w = randn(6, 4, 3, 3)
    with pytest.raises(Refused, match=r"reference/gemm cannot serve this call, .* negative bit set"):
        cw.conv2d(torch.complex(x := randn(2, 4, 9, 8), x).conj().imag, w, algorithm="reference/gemm")
    assert cw.conv2d(randn(0, 4, 9, 8), w).shape == (0, 6, 7, 6)


def test_operands_that_are_elsewhere_or_have_no_strides_are_refused_at_the_first_call() -> None:
    """PyTorch's own function gives whatever lies in memory for a weight that has none."""
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    for _ in range(2):
        with pytest.raises(BadInput, match="`weight` must be on cpu like `input`, got one on meta"):
            cw.conv2d(x, w.to("meta"))
        with pytest.raises(BadInput, match="`bias` must be on cpu like `input`, got one on meta"):
            cw.conv2d(x, w, torch.empty(6, device="meta"))
        with pytest.raises(BadInput, match=r"`input` must be a dense tensor, got one stored as torch\.sparse_coo"):
            cw.conv2d(x.to_sparse(), w)
        with pytest.raises(BadInput, match=r"`weight` must be a dense tensor, got one stored as torch\.sparse_coo"):
            cw.conv2d(x, w.to_sparse())
    assert cw.conv2d(x.to("meta"), w).shape == (2, 6, 7, 6)


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
@pytest.mark.parametrize("wants", [False, True])
def test_operands_that_share_their_memory_until_one_is_written_to_go_on_sharing_it(
    wants: bool, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    shared = [torch._lazy_clone(randn(*shape)).requires_grad_(wants) for shape in ((2, 4, 8, 8), (4, 4, 3, 3), (4,))]
    for _ in range(3):
        y = cw.conv2d(*shared, padding=1)
        if wants:
            dy = torch._lazy_clone(torch.ones_like(y))
            torch.autograd.grad(y, shared, dy)
            assert torch._C._is_cow_tensor(dy)
        assert all(map(torch._C._is_cow_tensor, shared))
