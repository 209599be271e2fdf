"""What the six functions take, and what they refuse: arguments, algorithms, images, outputs, bad input."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright import flags
from convwright.backends.torch_native import own as own_calls
from convwright.backends.torch_native.own import torch_candidate
from convwright.core.dtype import Arithmetic
from convwright.errors import BadCall, BadInput, Refused
from convwright.tuning.session import Answer, Choice, Session
from eager.each_form import EACH, NAMES, in_mode, is_transposed, operands, rank_of
from eager.prefer import BOTH, GEMM, count_calls, prefer, randn


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
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.int64])
def test_other_dtypes_are_pytorchs_own(
    name: str, dtype: torch.dtype, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_mode(mode, monkeypatch)
    x, w, b = (tensor.mul(4).to(dtype) for tensor in operands(name))
    for given in ([x, w, b], [x[0], w], [x[:0], w]):
        expected = getattr(F, name)(*given)
        for _ in range(3):
            assert torch.equal(getattr(cw, name)(*given), expected)
    with pytest.raises(cw.Refused, match=f"cannot serve this call, .* got {dtype}$"):
        getattr(cw, name)(x, w, b, algorithm="reference/gemm")


@EACH
def test_what_pytorch_has_no_kernel_for_is_refused(name: str) -> None:
    x, w, _ = (tensor.bool() for tensor in operands(name))
    said = r"^convolutions are computed in .* bf16, got torch\.bool \(PyTorch says: .* not implemented for 'Bool'\)$"
    with pytest.raises(BadCall, match=said):
        getattr(cw, name)(x, w)


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
        ("no groups", {"groups": 0}, "`groups` must be .*at least 1, got 0"),
        ("groups in halves", {"groups": 0.5}, r"`groups` must be a whole number, got 0\.5"),
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
        ("activation as a module", {"activation": nn.ReLU()}, r"activation must be one of none, .* got ReLU\(\)"),
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


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("algorithm", [None, GEMM])
def test_what_no_memory_could_hold_is_refused(name: str, algorithm: str | None) -> None:
    x, w, _ = operands(name)
    window: dict[str, Any] = {"padding": 2**40} if name == "conv2d" else {"dilation": 2**40}
    with pytest.raises(BadInput, match="the output would have more elements than a tensor can hold: shape"):
        getattr(cw, name)(x, w, algorithm=algorithm, **window)


@pytest.mark.parametrize(
    "value",
    [2, [2, 2], (2, 2), torch.Size([2, 2]), torch.tensor(2), [torch.tensor(2)] * 2, (2, torch.tensor(2))],
    ids=str,
)
@BOTH
def test_numbers_of_other_kinds(value: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = pytest.importorskip("numpy")
    prefer(monkeypatch, algorithm)
    x, w, b = operands("conv2d")
    for stride in (value, numpy.int64(2), (numpy.int64(2), 2), value):
        for _ in range(2):
            assert_close(cw.conv2d(x, w, b, stride), F.conv2d(x, w, b, 2))
    fresh = [each.clone() for each in (x, w, b)]
    with pytest.raises(ValueError, match="Overflow"):
        cw.conv2d(*fresh, 2**70)
    assert_close(cw.conv2d(*fresh, torch.tensor(2)), F.conv2d(x, w, b, 2))  # which cannot be compared with that
    with pytest.raises(BadInput, match=r"`stride` must be an int or a tuple of ints, got array\(\[2, 2\]\)"):
        cw.conv2d(x, w, b, numpy.array([2, 2]))


def test_a_result_of_one_dimension_can_be_changed_in_place_and_lies_as_pytorchs() -> None:
    x, w = torch.randn(2, 6, 20), torch.randn(8, 6, 3)
    with torch.no_grad():
        y = cw.conv1d(x, w, algorithm="as-2d(torch/default)")
    y.add_(torch.ones(1, requires_grad=True))
    w.requires_grad_()
    F.relu_(cw.conv1d(x, w, algorithm="as-2d(torch/default)")).sum().backward()
    wide = torch.randn(2, 1, 9, 9).expand(2, 6, 9, 9)
    found = cw.conv2d(wide, torch.randn(8, 6, 3, 3), padding=1, algorithm="pad-c(8, torch/default)")
    assert found.stride() == (648, 81, 9, 1)


@pytest.mark.parametrize("name", ["stride", "padding", "dilation"])
def test_lists_within_an_argument_are_refused_in_words(name: str) -> None:
    x, w, _ = operands("conv2d")
    for given in (([1], 1), [[1], 1]):
        for _ in range(2):
            with pytest.raises(BadInput, match=f"`{name}` must be an int or a tuple of ints"):
                cw.conv2d(x, w, **{name: given})


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_where_pytorchs_own_call_wins_it_computes_what_a_policy_allows(
    activation: str | None, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where PyTorch's flag allows TF32 and the policy does not."""

    def answer(self: Session, problem: Any, device: Any, *_: Any, **more: Any) -> Answer:
        choice = Choice(torch_candidate(problem, (("tf32", "off"),)), device)
        return Answer(choice, choice)

    allowed, own = [], torch.conv2d

    def counted(*given: Any, **more: Any) -> torch.Tensor:
        allowed.append(flags.tf32_allowed())
        return own(*given, **more)

    monkeypatch.setattr(Session, "answer", answer)
    monkeypatch.setitem(own_calls.FORWARD, 2, counted)
    x, w = randn(2, 4, 9, 9), randn(6, 4, 3, 3, grad=grad)
    policy = cw.Policy(arithmetic=frozenset({Arithmetic.FP32}))
    with flags.tf32(True):
        for _ in range(3):
            y = cw.conv2d(x, w, activation=activation, policy=policy)
    expected = F.conv2d(x, w)
    assert_close(y, expected if activation is None else expected.relu())
    assert allowed
    assert not any(allowed)
    assert y.requires_grad == grad
