"""All six functions are PyTorch's: over forms of arguments, dtypes, layouts, epilogues and gradients."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput, Refused
from convwright.settings import settings
from convwright.tuning import session as sessions
from ops.prefer import GEMM, TORCH, count_calls, prefer, randn

BOTH = pytest.mark.parametrize("algorithm", [TORCH, GEMM])
RANKS = (1, 2, 3)
NAMES = [f"conv{rank}d" for rank in RANKS] + [f"conv_transpose{rank}d" for rank in RANKS]
EACH = pytest.mark.parametrize("name", NAMES)
ACTIVATED = {None: lambda y: y, "relu": F.relu, "silu": F.silu, "gelu": F.gelu, "hardswish": F.hardswish}


def rank_of(name: str) -> int:
    return int(name[-2])


def is_transposed(name: str) -> bool:
    return "transpose" in name


def operands(name: str, n: int = 2, c: int = 4, k: int = 6, groups: int = 1, taps: tuple[int, ...] = (3, 2, 3)) -> Any:
    """Input, weight and bias; sizes and taps differ by dimension."""
    rank = rank_of(name)
    w = (c, k // groups) if is_transposed(name) else (k, c // groups)
    x_shape, w_shape = (n, c, *(6, 5, 4)[:rank]), (*w, *taps[:rank])
    return randn(*x_shape, seed=1), randn(*w_shape, seed=2), randn(k, seed=3)


# (channels and taps of the operands, arguments); a tuple or list of three is cut to the rank.
COMMON: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "pointwise": ({"taps": (1, 1, 1)}, {}),
    "stride": ({}, {"stride": 2}),
    "strides": ({}, {"stride": (2, 1, 3)}),
    "stride list": ({}, {"stride": [1, 2, 2]}),
    "stride for all": ({}, {"stride": [2]}),
    "stride beyond the taps": ({"taps": (1, 2, 1)}, {"stride": 3}),
    "padding": ({}, {"padding": 1}),
    "paddings": ({}, {"padding": (1, 0, 2)}),
    "padding list": ({}, {"padding": [0, 1, 1]}),
    "dilation": ({}, {"dilation": 2, "padding": 2}),
    "dilations": ({}, {"dilation": (1, 2, 1), "padding": 1}),
    "groups": ({"groups": 2}, {"groups": 2}),
    "depthwise": ({"c": 4, "k": 4, "groups": 4}, {"groups": 4, "padding": 1}),
    "depthwise multiplied": ({"c": 3, "k": 6, "groups": 3}, {"groups": 3, "stride": 2, "padding": 1}),
    "one image": ({"n": 1}, {"padding": 1}),
    "one channel": ({"c": 1, "k": 1}, {"padding": 1}),
    "everything": (
        {"c": 6, "k": 9, "groups": 3},
        {"stride": (2, 1, 1), "padding": (1, 2, 1), "dilation": (1, 2, 1), "groups": 3},
    ),
}
FORWARD = {
    "same": ({}, {"padding": "same"}),
    "same, even taps": ({"taps": (2, 4, 2)}, {"padding": "same"}),
    "same, dilated": ({"taps": (2, 3, 2)}, {"padding": "same", "dilation": (3, 1, 1)}),
    "valid": ({}, {"padding": "valid", "stride": 2}),
    "padding beyond the taps": ({"taps": (2, 2, 2)}, {"padding": 3}),
}
TRANSPOSED = {
    "output padding": ({}, {"stride": 2, "output_padding": 1}),
    "output paddings": ({}, {"stride": (3, 2, 2), "output_padding": (2, 0, 1), "padding": 1}),
    "output padding list": ({}, {"stride": 2, "output_padding": [1, 0, 1]}),
    "output padding beyond the stride": ({}, {"dilation": 3, "output_padding": 2, "padding": 2}),
    "output padding that no input reaches": ({}, {"stride": 1, "dilation": 4, "output_padding": 3}),
    "everything transposed": (
        {"c": 6, "k": 9, "groups": 3},
        {"stride": (2, 3, 2), "padding": (1, 0, 1), "output_padding": (1, 2, 0), "dilation": (1, 2, 1), "groups": 3},
    ),
}
FORMS = [
    pytest.param(name, *case, id=f"{name}-{what}")
    for name in NAMES
    for what, case in (COMMON | (TRANSPOSED if is_transposed(name) else FORWARD)).items()
]


def cut(arguments: dict[str, Any], rank: int) -> dict[str, Any]:
    """A copy, with as many entries as there are dimensions."""
    return {
        key: value[:rank] if isinstance(value, tuple | list) and len(value) > 1 else value
        for key, value in arguments.items()
    }


def results(function: Any, given: list[Tensor], arguments: dict[str, Any]) -> list[Tensor]:
    """The result and the gradients of fresh copies of the operands, in their own layout."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in given]
    y = function(*leaves, **arguments)
    dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).to(y.dtype).reshape(y.shape)
    return [y, *torch.autograd.grad(y, leaves, dy)]


@BOTH
@pytest.mark.parametrize(("name", "sizes", "arguments"), FORMS)
def test_results_and_gradients(
    name: str, sizes: dict[str, Any], arguments: dict[str, Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    arguments = cut(arguments, rank_of(name))
    given = list(operands(name, **sizes))
    for tensors in (given[:2], given):
        for _ in range(2):  # the second call takes the short way
            ours, theirs = (results(getattr(of, name), tensors, arguments) for of in (cw, F))
            assert_close(ours, theirs)
        with torch.no_grad():
            assert_close(getattr(cw, name)(*tensors, **arguments), theirs[0])
    # Such an output padding is no backward_data problem: PyTorch computes it.
    ours_too = algorithm == GEMM and arguments.get("output_padding") != 3
    assert ("forward" in called) == ("backward_data" in called) == ("backward_weight" in called) == ours_too


SMALL: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("conv1d", {"c": 2, "k": 2}, {"padding": 1, "stride": 2}),
    ("conv2d", {"c": 2, "k": 2, "groups": 2}, {"groups": 2, "dilation": (1, 2)}),
    ("conv3d", {"n": 1, "c": 2, "k": 1, "taps": (2, 2, 2)}, {"padding": "valid"}),
    ("conv_transpose1d", {"c": 2, "k": 2}, {"stride": 2, "output_padding": 1}),
    ("conv_transpose2d", {"n": 1, "c": 2, "k": 2, "groups": 2, "taps": (2, 2)}, {"groups": 2, "padding": 1}),
    ("conv_transpose3d", {"n": 1, "c": 1, "k": 2, "taps": (2, 1, 2)}, {"dilation": (1, 1, 2)}),
]


@BOTH
@pytest.mark.parametrize(("name", "sizes", "arguments"), SMALL)
def test_gradients_by_finite_differences(
    name: str, sizes: dict[str, Any], arguments: dict[str, Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, algorithm)
    rank, function = rank_of(name), getattr(cw, name)
    x, w, b = operands(name, **sizes)
    x = x[(slice(0, 1), slice(None), *[slice(0, 3)] * rank)].clone()
    given = [tensor.requires_grad_() for tensor in (x, w, b)]
    for activation in (None, "relu"):
        # Batched gradients are those of vmap over a backward pass.
        assert gradcheck(
            lambda *t, a=activation: function(*t, **arguments, activation=a), given, check_batched_grad=True
        )
        assert gradgradcheck(lambda *t, a=activation: function(*t, **arguments, activation=a), given)


def whole(tensor: Tensor) -> Tensor:
    """Small whole numbers in place of the values: their sums are exact in every dtype."""
    return (tensor * 1.5).round().clamp(-2, 2)


@EACH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@BOTH
def test_dtypes(name: str, dtype: torch.dtype, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = (whole(tensor).to(dtype) for tensor in operands(name))
    for _ in range(2):
        assert_close(getattr(cw, name)(x, w, b, 1, 1), getattr(F, name)(x, w, b, 1, 1), rtol=0, atol=0)


def channels_last(tensor: Tensor) -> Tensor:
    order = [0, *range(2, tensor.dim()), 1]
    return tensor.permute(order).contiguous().permute(0, tensor.dim() - 1, *range(1, tensor.dim() - 1))


def turned(tensor: Tensor) -> Tensor:
    """The same values, the last dimension stored before the first."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def every_other(tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(2, -1)[..., ::2]


def offset(tensor: Tensor) -> Tensor:
    """The same values in a slice that begins inside a larger buffer."""
    buffer = tensor.new_full((tensor.shape[0] + 1, tensor.shape[1] + 3, *tensor.shape[2:]), float("nan"))
    return buffer[1:, 2 : 2 + tensor.shape[1]].copy_(tensor)


def expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape)


LAYOUTS = [channels_last, turned, every_other, offset, expanded]


@EACH
@pytest.mark.parametrize(
    ("x_as", "w_as"), [*product(LAYOUTS[:4], LAYOUTS[:2]), (expanded, offset)], ids=lambda f: f.__name__
)
@BOTH
def test_memory_layouts(name: str, x_as: Any, w_as: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    x, w = x_as(x), w_as(w)
    for _ in range(2):
        ours, theirs = getattr(cw, name)(x, w, b, padding=1), getattr(F, name)(x, w, b, padding=1)
        assert_close(ours, theirs)
        strides = zip(ours.shape, ours.stride(), theirs.stride(), strict=True)
        assert all(mine == own for size, mine, own in strides if size > 1), (ours.stride(), theirs.stride())
        assert_close(*(results(getattr(of, name), [x, w, b], {"stride": 2}) for of in (cw, F)))


@EACH
@BOTH
def test_single_images_and_empty_batches(name: str, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    for given in (x[0], x[:0]):
        for _ in range(2):
            ours, theirs = (results(getattr(of, name), [given, w, b], {"padding": 1}) for of in (cw, F))
            assert_close(ours, theirs)
    residual = getattr(F, name)(x[0], w, b) * 2
    ours = getattr(cw, name)(x[0], w, b, residual=residual, activation="silu")
    assert_close(ours, F.silu(residual / 2 + residual))


@EACH
@pytest.mark.parametrize("activation", ACTIVATED)
@BOTH
def test_epilogues(name: str, activation: str | None, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``activation(conv + bias + residual)``, with gradients and without."""
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    residual = randn(*getattr(F, name)(x, w).shape, seed=5)

    def theirs(*t: Tensor) -> Tensor:
        y: Tensor = ACTIVATED[activation](
            getattr(F, name)(*t[:2]) + t[2].reshape(-1, *[1] * rank_of(name)) + sum(t[3:])
        )
        return y

    def ours(*t: Tensor) -> Tensor:
        y: Tensor = getattr(cw, name)(*t[:3], activation=activation, residual=t[3] if len(t) > 3 else None)
        return y

    for given in ([x, w, b], [x, w, b, residual]):
        for _ in range(2):
            assert_close(results(ours, given, {}), results(theirs, given, {}))
            with torch.no_grad():
                assert_close(ours(*given), theirs(*given))
            if len(given) == 4:
                assert torch.equal(residual, given[3])


@BOTH
def test_an_activation_called_none_is_none(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = operands("conv2d")
    for _ in range(2):
        assert_close(cw.conv2d(x, w, b, activation="none"), F.conv2d(x, w, b))


@EACH
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("mode", ["heuristic", "quick"])
@BOTH
def test_out_takes_the_result(
    name: str, activation: str | None, mode: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_mode(mode, monkeypatch)
    prefer(monkeypatch, algorithm)
    x, w, b = operands(name)
    plain = getattr(F, name)(x, w, b)
    residual = randn(*plain.shape, seed=5)
    for added in (None, residual):
        for out_as in (torch.clone, channels_last, offset):
            for _ in range(3):
                out = out_as(torch.full_like(plain, float("nan")))
                version = out._version
                y = getattr(cw, name)(x, w, b, activation=activation, residual=added, out=out)
                assert y.data_ptr() == out.data_ptr()
                assert out._version > version
                assert_close(out, ACTIVATED[activation](plain if added is None else plain + added))


def in_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", mode)
    settings.cache_clear()
    sessions.session.cache_clear()


@EACH
def test_arguments_stand_in_pytorchs_order(name: str) -> None:
    """By position and by keyword; what is ours can be given by keyword only."""
    kinds = {parameter: kind.kind for parameter, kind in inspect.signature(getattr(cw, name)).parameters.items()}
    last = ["output_padding", "groups", "dilation"] if is_transposed(name) else ["dilation", "groups"]
    order = ["input", "weight", "bias", "stride", "padding", *last]
    assert [each for each, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == order
    others = [each for each, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    assert others == ["activation", "residual", "algorithm", "policy", "out"]
    x, w, b = operands(name, groups=2)
    values: dict[str, Any] = {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2, "dilation": 2}
    given = [x, w, b, *(values[each] for each in order[3:])]
    expected = getattr(F, name)(*given)
    assert_close(getattr(cw, name)(*given), expected)
    assert_close(getattr(cw, name)(**dict(zip(order, given, strict=True))), expected)
    assert_close(getattr(F, name)(**dict(zip(order, given, strict=True))), expected)


@EACH
def test_an_algorithm_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w, b = operands(name)
    direction = "backward_data" if is_transposed(name) else "forward"
    function, expected = getattr(cw, name), getattr(F, name)(x, w, b)
    for algorithm in (GEMM, "torch/default", f"split-batch(2, {GEMM})"):
        for _ in range(2):
            called.clear()
            assert_close(function(x, w, b, algorithm=algorithm), expected)
            assert set(called) == ({direction} if GEMM in algorithm else set())
        last = cw.last_choice()
        assert last is not None
        assert last.candidate.id == algorithm
    for _ in range(2):
        with pytest.raises(BadInput, match=r"no algorithm here is called 'magic'; for this problem there are .*gemm"):
            function(x, w, b, algorithm="magic")
        with pytest.raises(Refused, match=r"^triton/implicit-gemm cannot compute .*NVIDIA") as said:
            function(x, w, b, algorithm="triton/implicit-gemm")
        assert "\n" not in str(said.value)


@pytest.mark.parametrize("mode", ["heuristic", "quick"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in NAMES if is_transposed(name)])
def test_padding_that_leaves_nothing(name: str, dtype: torch.dtype, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_mode(mode, monkeypatch)
    rank = rank_of(name)
    x, w = torch.ones(2, 2, *(4, 3, 3)[:rank], dtype=dtype), torch.ones(2, 3, *(1, 2, 2)[:rank], dtype=dtype)
    window = {"padding": (2, 0, 0)[:rank], "activation": "relu"}
    empty = torch.empty(2, 3, 0, *(4, 4)[: rank - 1], dtype=dtype)
    try:
        expected = getattr(F, name)(x, w, padding=window["padding"])
    except RuntimeError:  # PyTorch has functions that do and functions that do not
        for _ in range(3):
            for more in ({}, {"residual": empty}, {"out": empty}):
                with pytest.raises(BadInput, match=r"`padding` \(=2\) takes away all of the 4 elements of an output"):
                    getattr(cw, name)(x, w, **window, **more)
        return
    for _ in range(3):
        for more in ({}, {"residual": expected}, {"out": torch.empty_like(expected)}):
            y = getattr(cw, name)(x, w, **window, **more)
            assert (y.shape, y.dtype) == (expected.shape, dtype)
            assert not y.numel()


@pytest.mark.parametrize("mode", ["heuristic", "quick"])
@EACH
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.int32, torch.int64, torch.bool])
def test_other_dtypes_are_refused(name: str, dtype: torch.dtype, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_mode(mode, monkeypatch)
    x, w, b = (tensor.to(dtype) for tensor in operands(name))
    for given in ([x, w, b], [x[0], w], [x[:0], w]):
        with pytest.raises(BadInput, match=f"^convolutions are computed in fp64, fp32, fp16, bf16, got {dtype}$"):
            getattr(cw, name)(*given)


def bad(name: str) -> list[tuple[str, dict[str, Any], str]]:
    """(what, changed arguments, words of the sentence) for one function whose operands are right."""
    x, w, b = operands(name)
    transposed, y = is_transposed(name), getattr(F, name)(x, w)
    axes = {1: "L", 2: "H, W", 3: "D, H, W"}[rank_of(name)]
    listed: list[tuple[str, dict[str, Any], str]] = [
        ("rank of input", {"input": x[None]}, rf"{name} takes an `input` \(N, C, {axes}\) or \(C, {axes}\)"),
        ("rank of weight", {"weight": w[0]}, rf"{name} takes an `input` .* and a `weight` \("),
        ("vectors", {"input": x.flatten(), "weight": w.flatten()}, f"{name} takes an `input`"),
        ("channels", {"input": x[:, :3]}, r"`in_channels|`weight` must have|as its first size"),
        ("groups of input", {"groups": 3}, r"`in_channels` \(=4\) must be divisible by `groups` \(=3\)"),
        ("no groups", {"groups": 0}, "`groups` must be"),
        ("negative padding", {"padding": -1}, "`padding` must be at least 0"),
        ("negative stride", {"stride": -2}, "`stride` must be at least 1"),
        ("no stride", {"stride": 0}, "`stride` must be at least 1"),
        ("no dilation", {"dilation": 0}, "`dilation` must be at least 1"),
        ("strides", {"stride": (1, 1, 1, 1)}, r"`stride` must be an int or \d ints?, got \(1, 1, 1, 1\)"),
        ("stride in words", {"stride": "2"}, "`stride` must be an int or .* got '2'"),
        ("stride in halves", {"stride": 0.5}, "`stride` must be an int or .* got 0.5"),
        ("bias", {"bias": b[:5]}, r"`bias` must have shape \(6,\), one entry per output channel, got \(5,\)"),
        ("bias of other rank", {"bias": b[None]}, r"`bias` must have shape \(6,\).* got \(1, 6\)"),
        ("dtypes", {"weight": w.float()}, r"`weight` must be torch\.float64 on cpu like `input`, got torch\.float32"),
        ("no tensor", {"weight": [1.0]}, "`weight` must be a tensor, got list"),
        ("no input", {"input": None}, "`input` must be a tensor, got NoneType"),
        ("no bias", {"bias": 1.0}, "`bias` must be a tensor, got float"),
        ("activation", {"activation": "tanh"}, "activation must be one of none, relu, .* got 'tanh'"),
        ("residual", {"residual": y[:1]}, "`residual` must have the output's shape"),
        ("residual's dtype", {"residual": y.float()}, r"`residual` must be torch\.float64 on cpu"),
        ("out", {"out": y[:, :1].clone()}, "`out` must have the output's shape"),
        ("larger out", {"out": torch.cat([y, y])}, "`out` must have the output's shape"),
        ("out's dtype", {"out": y.half()}, r"`out` must be torch\.float64 on cpu like `input`, got torch\.float16"),
        ("out is no tensor", {"out": 3}, "`out` must be a tensor, got int"),
        ("algorithm", {"algorithm": "fastest"}, "no algorithm here is called 'fastest'"),
    ]  # fmt: skip
    if transposed:
        listed += [
            ("padding in words", {"padding": "same"}, "`padding` of a transposed .* got 'same'"),
            ("output padding", {"output_padding": 1}, r"`output_padding` \(=1\) must be smaller than `stride` \(=1\)"),
            ("negative output padding", {"output_padding": -1}, "`output_padding` must be at least 0"),
            ("padding takes all", {"padding": 9}, r"`padding` \(=9\) takes away all"),
        ]
    else:
        listed += [
            ("padding in words", {"padding": "full"}, "`padding` must be .*'valid' or 'same', got 'full'"),
            ("dtype of bias", {"bias": b.float()}, r"`bias` must be torch\.float64 on cpu like `input`"),
            ("same with strides", {"padding": "same", "stride": 2}, "padding='same' needs stride 1, got"),
            ("kernel too large", {"dilation": 9}, "the filter reaches over 19 elements, but the padded `input` has"),
            ("groups of weight", {"weight": w[:, :2][:5], "groups": 2}, r"`out_channels` \(=5\) must be divisible"),
        ]
    return listed


@pytest.mark.parametrize(
    ("mode", "name", "changed", "words"),
    [
        pytest.param(mode, name, *case[1:], id=f"{name}-{case[0]}-{mode}")
        for mode, names in (("heuristic", NAMES), ("quick", ["conv2d", "conv_transpose3d"]))  # which searches
        for name in names
        for case in bad(name)
    ],
)
def test_bad_input_is_one_sentence(
    mode: str, name: str, changed: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not anything is decided at the call."""
    in_mode(mode, monkeypatch)
    x, w, b = operands(name)
    for _ in range(2):
        with pytest.raises(BadInput, match=words) as refused:
            getattr(cw, name)(**{"input": x, "weight": w, "bias": b} | changed)
        assert "\n" not in str(refused.value)
        # What is right is computed before and afterwards.
        assert_close(getattr(cw, name)(x, w, b), getattr(F, name)(x, w, b))


@EACH
def test_images_of_a_weight_that_has_seen_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What served a batch says nothing of what an image asks for."""
    in_mode("quick", monkeypatch)
    called = count_calls(monkeypatch)
    w, sizes = randn(4, 4, *(3, 3, 3)[: rank_of(name)]), (6, 5, 4)[: rank_of(name)]
    ours, theirs = getattr(cw, name), getattr(F, name)
    for n in (1, 2):
        ours(randn(n, 4, *sizes), w, algorithm="torch/default")
    image = randn(4, *sizes)
    expected = theirs(image, w)
    for activation, activated in (("relu", F.relu(expected)), (None, expected), ("gelu", F.gelu(expected))):
        for _ in range(3):
            assert_close(ours(image, w, activation=activation), activated)
    for _ in range(3):
        called.clear()
        assert_close(ours(image, w, algorithm=GEMM), expected)
        assert_close(ours(image, w, algorithm="torch/default"), expected)
        assert len(called) == 1


@EACH
def test_out_may_not_overlap_what_is_read(name: str) -> None:
    x, w = randn(2, 4, *(5, 5, 5)[: rank_of(name)]), randn(4, 4, *(1, 1, 1)[: rank_of(name)])
    for _ in range(2):
        with pytest.raises(BadInput, match="`out` and `input` must not overlap in memory"):
            getattr(cw, name)(x, w, out=x)
        residual = torch.zeros_like(x)
        with pytest.raises(BadInput, match="`out` and `residual` must not overlap in memory"):
            getattr(cw, name)(x, w, out=residual, residual=residual)
        with pytest.raises(BadInput, match="`out` must not overlap itself in memory, got shape"):
            getattr(cw, name)(x, w, out=residual[:1].expand(2, *residual.shape[1:]))


@pytest.mark.parametrize("value", [2, [2, 2], (2, 2), torch.Size([2, 2]), torch.tensor(2)], ids=str)
@BOTH
def test_numbers_of_other_kinds(value: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    prefer(monkeypatch, algorithm)
    x, w, b = operands("conv2d")
    for stride in (value, numpy.int64(2), (numpy.int64(2), 2), value):
        for _ in range(2):
            assert_close(cw.conv2d(x, w, b, stride), F.conv2d(x, w, b, 2))
    with pytest.raises(BadInput, match=r"`stride` must be an int or a tuple of ints, got array\(\[2, 2\]\)"):
        cw.conv2d(x, w, b, numpy.array([2, 2]))
