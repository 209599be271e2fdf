"""Whoever must see PyTorch's own functions sees them: compilers, functorch, autocast, subclasses, fake tensors."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.errors import BadInput, Refused
from ops.prefer import GEMM, TORCH, count_calls, prefer, randn

BOTH = pytest.mark.parametrize("algorithm", [TORCH, GEMM])


class Layer(nn.Module):
    def __init__(self, **rest: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(6, 4, 3, 3, seed=1))
        self.bias = nn.Parameter(randn(6, seed=2))
        self.rest = rest

    def forward(self, x: Tensor) -> Tensor:
        return cw.conv2d(x, self.weight, self.bias, **self.rest)

    def plain(self, x: Tensor) -> Tensor:
        rest = dict(self.rest)
        relu = rest.pop("activation", None) == "relu"
        y = F.conv2d(x, self.weight, self.bias, **rest)
        return y.relu() if relu else y


FORMS: list[dict[str, Any]] = [
    {"padding": 1, "activation": "relu"},
    {"padding": "same", "dilation": [2, 1]},
    {"stride": (2, 1)},
]


@pytest.fixture
def compiler() -> Any:
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


@BOTH
def test_compiled_forward_and_backward(algorithm: str, compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    for rest in FORMS:
        layer, x = Layer(**rest), randn(2, 4, 9, 8, grad=True)
        compiled, wanted = compiler(layer), [x, layer.weight, layer.bias]
        ours, theirs = compiled(x), layer.plain(x)
        assert_close(ours, theirs)
        assert_close(
            torch.autograd.grad(ours.square().sum(), wanted), torch.autograd.grad(theirs.square().sum(), wanted)
        )
        with torch.no_grad():
            assert_close(compiled(x), theirs)
    assert bool(called) == (algorithm == GEMM)


def test_compiled_with_a_residual(compiler: Any) -> None:
    def function(x: Tensor, w: Tensor, residual: Tensor) -> Tensor:
        return cw.conv2d(x * 2, w, None, residual=residual, activation="relu") + 1

    given = randn(2, 4, 5, 5, grad=True), randn(6, 4, 1, 1, grad=True), randn(2, 6, 5, 5, grad=True)
    y = compiler(function)(*given)
    expected = (F.conv2d(given[0] * 2, given[1]) + given[2]).relu() + 1
    assert_close(y, expected)
    assert_close(torch.autograd.grad(y.sum(), given), torch.autograd.grad(expected.sum(), given))


def test_compiled_with_an_uneven_padding_and_single_images(compiler: Any) -> None:
    compiled = compiler(lambda x, w: cw.conv2d(x, w, padding="same"))
    for x in (randn(2, 4, 6, 6), randn(4, 6, 6)):
        w = randn(6, 4, 2, 2)
        assert_close(compiled(x, w), F.conv2d(x, w, padding="same"))


def test_compiled_with_an_output(compiler: Any) -> None:
    x, w, out = randn(2, 4, 6, 6), randn(6, 4, 3, 3), torch.zeros(2, 6, 4, 4, dtype=torch.float64)
    compiler(lambda x, w, out: cw.conv2d(x, w, out=out))(x, w, out)
    assert_close(out, F.conv2d(x, w))


def test_compiled_results_lie_in_memory_as_was_traced(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x = randn(2, 4, 9, 8).contiguous(memory_format=torch.channels_last)
    layer = Layer(padding=1)
    y = compiler(lambda x: layer(x).permute(0, 2, 3, 1).reshape(-1))(x)
    assert_close(y, layer.plain(x).permute(0, 2, 3, 1).reshape(-1))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("transposed", [False, True])
def test_compiled_for_every_size_at_once(backend: str, transposed: bool) -> None:
    """With weights that are inputs too, whose sizes a compiler would leave open if it could."""
    torch._dynamo.reset()
    ours, theirs = (cw.conv_transpose2d, F.conv_transpose2d) if transposed else (cw.conv2d, F.conv2d)

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        made: Tensor = ours(x, w, b, padding=1, activation="silu")
        return made

    compiled, w, b = torch.compile(function, backend=backend, fullgraph=True, dynamic=True), randn(4, 4, 3, 3), randn(4)
    w, b = w.requires_grad_(), b.requires_grad_()
    for size in (7, 8, 11):
        x = randn(2, 4, size, size + 1, grad=True)
        y, expected = compiled(x, w, b), F.silu(theirs(x, w, b, padding=1))
        assert_close(y, expected)
        dy = randn(*y.shape)
        assert_close(torch.autograd.grad(y, (x, w, b), dy), torch.autograd.grad(expected, (x, w, b), dy))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose3d"])
def test_the_functions_themselves_can_be_compiled(name: str, compiler: Any) -> None:
    rank = int(name[-2])
    given = randn(2, 4, *(5, 4, 6)[:rank], grad=True), randn(4, 4, *(3, 2, 3)[:rank], grad=True), randn(4, grad=True)
    for rest in ({}, {"stride": 2, "padding": 1}):
        y, expected = compiler(getattr(cw, name))(*given, **rest), getattr(F, name)(*given, **rest)
        assert_close(y, expected)
        assert_close(torch.autograd.grad(y.sum(), given), torch.autograd.grad(expected.sum(), given))


def test_compiled_under_autocast(compiler: Any) -> None:
    x, w = randn(2, 4, 6, 6, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32, grad=True)
    compiled = compiler(lambda x: cw.conv2d(x, w, activation="relu"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = compiled(x), F.conv2d(x, w).relu()
    assert y.dtype is expected.dtype is torch.bfloat16
    assert_close(y, expected, rtol=0.02, atol=0.05)
    y.float().sum().backward()
    assert w.grad is not None
    assert w.grad.dtype is torch.float32
    residual = randn(2, 6, 4, 4, dtype=torch.float32)
    compiled = compiler(lambda x: cw.conv2d(x, w, residual=residual))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = compiled(x), F.conv2d(x, w) + residual
    assert y.dtype is expected.dtype is torch.float32
    assert_close(y, expected, rtol=0.02, atol=0.05)


def test_what_is_asked_for_is_obeyed_by_what_was_compiled(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    named, free = (compiler(lambda x, a=algorithm: cw.conv2d(x, w, algorithm=a)) for algorithm in (GEMM, None))
    for _ in range(2):
        called.clear()
        assert_close(named(x), F.conv2d(x, w))
        assert called == ["forward"]
        assert_close(free(x), F.conv2d(x, w))
        assert called == ["forward"]
        with cw.algorithms(forward=GEMM):  # around the call, not inside of what is compiled
            free(x)
        assert called == ["forward"] * 2


def test_auto_is_the_free_choice_of_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: cw.conv2d(x, w, algorithm="auto") + cw.conv2d(x, w), backend="eager", fullgraph=True
    )
    for _ in range(2):
        called.clear()
        assert_close(compiled(x), 2 * F.conv2d(x, w))
        assert called == []
        with cw.algorithms(forward=GEMM):
            assert_close(compiled(x), 2 * F.conv2d(x, w))
        assert called == ["forward"]
    traced = torch.fx.symbolic_trace(lambda x: cw.conv2d(x, w, algorithm="auto"))
    with cw.algorithms(forward=GEMM):
        assert_close(traced(x), F.conv2d(x, w))
    assert called == ["forward"]


def test_what_cannot_be_compiled_says_so(compiler: Any) -> None:
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)

    def inside(x: Tensor) -> Tensor:
        with cw.algorithms(forward=GEMM):
            return cw.conv2d(x, w)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="a `policy=` is kept by a choice at the call: set PyTorch"):
        compiler(lambda x: cw.conv2d(x, w, policy=cw.Policy()))(x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="`algorithms` is no part of a graph: open it around what"):
        compiler(inside)(x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="`find` is no part of a graph: call it outside of what"):
        compiler(lambda x: cw.find(x, w, mode="quick"))(x)
    with pytest.raises(cw.BadInput, match="no algorithm here is called 'magic'"):
        compiler(lambda x: cw.conv2d(x, w, algorithm="magic"))(x)
    # Where graphs may break, both are computed outside of them.
    torch._dynamo.reset()
    for function in (inside, lambda x: cw.conv2d(x, w, policy=cw.Policy())):
        assert_close(torch.compile(function, backend="eager")(x), F.conv2d(x, w))


def looked_through() -> set[str]:
    """The rooms, and the modules of `ops`, of which Dynamo has seen code."""
    from torch._dynamo.convert_frame import input_codes

    files = [Path(code.co_filename) for weak in input_codes.seen if (code := weak()) is not None]
    root = Path(cw.__file__).parent
    ours = [file.relative_to(root) for file in files if file.is_relative_to(root)]
    return {file.stem if file.parts[0] == "ops" else file.parts[0] for file in ours}


@pytest.mark.parametrize("what", ["policy", "find", "measure", "tune", "enabled"])
def test_what_is_no_part_of_a_graph_is_not_looked_through(what: str) -> None:
    """A search, its timer and its store once took Dynamo 18 s, and what it had made of them failed later calls."""
    x, w = randn(2, 4, 6, 6), randn(6, 4, 3, 3)
    layer, policy = nn.Conv2d(4, 4, 3).double(), cw.Policy(max_workspace_bytes=0)

    def enabled(x: Tensor) -> Tensor:
        with cw.enabled(policy=policy):
            return F.conv2d(x, w) if x.is_contiguous() else layer(x)

    asked = {
        "policy": lambda x: cw.conv2d(x, w, padding=1, policy=policy),
        "find": lambda x: cw.find(x, w, mode="heuristic"),
        "measure": lambda x: cw.measure(lambda: x + 1, budget_us=1000),
        "tune": lambda x: cw.tune(layer, x, mode="quick", budget_us=1e5),
        "enabled": enabled,
    }
    torch._dynamo.reset()
    for backend in ("eager", "aot_eager"):
        torch.compile(asked[what], backend=backend)(x)
    assert looked_through() <= {"functional", "refusing", "beyond", "enable"}
    with cw.algorithms(forward=GEMM):
        assert_close(torch.compile(lambda x: cw.conv2d(x, w), backend="eager")(x), F.conv2d(x, w))
    torch._dynamo.reset()


@pytest.mark.parametrize("strict", [False, True])
def test_exported_for_every_size(strict: bool, tmp_path: Any) -> None:
    layer = Layer(padding="same", activation="gelu")
    layer.weight = nn.Parameter(randn(6, 4, 4, 4))
    sizes = {"x": {0: torch.export.Dim("n", max=64), 2: torch.export.Dim("h", min=5, max=64)}}
    program = torch.export.export(layer, (randn(2, 4, 9, 8),), strict=strict, dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "layer.pt2")
    for made in (program, torch.export.load(tmp_path / "layer.pt2"), program.run_decompositions()):
        x = randn(3, 4, 12, 8)
        assert_close(made.module()(x), F.gelu(F.conv2d(x, layer.weight, layer.bias, padding="same")))


def test_exported_with_an_algorithm() -> None:
    layer, x = Layer(algorithm=GEMM), randn(2, 4, 9, 8)
    program = torch.export.export(layer, (x,), strict=True)
    assert_close(program.module()(x), layer.plain(x) if layer.rest.pop("algorithm") else None)
    with pytest.raises(Refused, match=r"reference/gemm cannot serve this call: .*, as in torch\.export$"):
        torch.export.export(Layer(algorithm=GEMM), (x,), strict=False)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    layer, x = Layer(padding=1, activation="relu"), randn(2, 4, 9, 8)
    program = torch.export.export(layer, (x,), strict=strict)
    assert any("conv" in str(node.target) for node in program.graph.nodes)
    assert_close(program.module()(x), layer.plain(x))


def test_the_custom_op_is_sound() -> None:
    import convwright.ops.tracing  # noqa: F401  it registers the op

    given = randn(2, 4, 5, 5, grad=True), randn(6, 4, 3, 3, grad=True), randn(6, grad=True), None
    arguments = ([1, 2], [1, 0], [1, 1], False, [0, 0], 1, "relu", None)
    torch.library.opcheck(torch.ops.convwright.convolution.default, (*given, *arguments))
    given = randn(2, 6, 5, 5, grad=True), randn(6, 4, 3, 3, grad=True), randn(4, grad=True), None
    arguments = ([1, 2], [1, 0], [1, 1], True, [0, 1], 1, "none", None)
    torch.library.opcheck(torch.ops.convwright.convolution.default, (*given, *arguments))


@BOTH
def test_vmap_and_functional_gradients(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(3, 2, 4, 6, 6), randn(6, 4, 3, 3)
    cw.conv2d(x[0], w)  # what is remembered of this must not serve the batched call

    def ours(x: Tensor, w: Tensor) -> Tensor:
        return cw.conv2d(x, w, padding=1, activation="relu").square().sum()

    def theirs(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1).relu().square().sum()

    for transform in (
        lambda f: torch.vmap(f, (0, None)),
        lambda f: torch.func.vmap(torch.func.grad(f, (0, 1)), (0, None)),
        lambda f: lambda x, w: torch.func.grad(f, (0, 1))(x[0], w),
        lambda f: lambda x, w: torch.func.jvp(f, (x[0], w), (x[1], w)),
        lambda f: lambda x, w: torch.func.hessian(f)(x[0, :1, :, :3, :3], w[:1])[0, 0],
    ):
        assert_close(transform(ours)(x, w), transform(theirs)(x, w))
    assert_close(cw.conv2d(x[0], w), F.conv2d(x[0], w))


def test_forward_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.autograd import forward_ad

    x, w, tangent = randn(2, 4, 6, 6), randn(6, 4, 3, 3), randn(2, 4, 6, 6, seed=5)
    cw.conv2d(x, w)
    with forward_ad.dual_level():
        y = cw.conv2d(forward_ad.make_dual(x, tangent), w)
        assert_close(forward_ad.unpack_dual(y).tangent, F.conv2d(tangent, w))


@BOTH
def test_autocast(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w, b = (randn(*shape, dtype=torch.float32, grad=True) for shape in ((2, 4, 9, 8), (6, 4, 3, 3), (6,)))
    for inside in (False, True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            ours, theirs = cw.conv2d(x, w, b), F.conv2d(x, w, b)
        assert ours.dtype == theirs.dtype == (torch.bfloat16 if inside else torch.float32)
        tolerance = {"rtol": 0.02, "atol": 0.1} if inside else {"rtol": 1e-4, "atol": 1e-4}
        assert_close(ours, theirs, **tolerance)
        made = [torch.autograd.grad(y.float().sum(), (x, w, b)) for y in (ours, theirs)]
        assert [gradient.dtype for gradient in made[0]] == [torch.float32] * 3
        assert_close(*made, rtol=0.02, atol=0.5 if inside else 1e-3)


def test_autocast_leaves_float64_alone() -> None:
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = cw.conv2d(x, w), F.conv2d(x, w)
    assert ours.dtype == theirs.dtype
    assert_close(ours, theirs)


def test_autocast_reconciles_mixed_operands() -> None:
    x, w = randn(2, 4, 9, 8, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))


@BOTH
def test_inference_mode(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    outside = randn(2, 4, 9, 8), randn(6, 4, 3, 3, grad=True)
    for _ in range(2):
        with torch.inference_mode():
            inside = outside[0] + 1, outside[1] * 2
            for x, w in (outside, inside):
                assert_close(cw.conv2d(x, w, activation="relu"), F.conv2d(x, w).relu())
        assert cw.conv2d(*outside).requires_grad


@BOTH
def test_fake_tensors(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    called = count_calls(monkeypatch)
    real = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in real]
        y = cw.conv2d(*fake, padding=1, activation="relu")
    assert tuple(y.shape) == (2, 6, 9, 8)
    assert type(y) is not Tensor
    assert called == []


def test_meta_tensors() -> None:
    x, w = (torch.empty(shape, device="meta") for shape in ((2, 4, 9, 8), (6, 4, 3, 3)))
    y = cw.conv2d(x, w, padding=1)
    assert (y.device.type, tuple(y.shape)) == ("meta", (2, 6, 9, 8))


class Seen(Tensor):
    """Notes the functions that it is given to."""

    functions: list[str]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if hasattr(cls, "functions"):
            cls.functions.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


@BOTH
@pytest.mark.parametrize("which", [0, 1])
def test_subclasses(which: int, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    operands = [randn(2, 4, 9, 8), randn(6, 4, 3, 3)]
    expected = F.conv2d(*operands)
    cw.conv2d(*operands)
    operands[which] = operands[which].as_subclass(Seen)
    Seen.functions = []
    y = cw.conv2d(*operands)
    assert type(y) is Seen
    assert "conv2d" in Seen.functions
    assert_close(y.as_subclass(Tensor), expected)


def test_dispatch_modes_see_the_convolution() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    x, w = randn(2, 4, 9, 8), randn(6, 4, 3, 3)
    cw.conv2d(x, w)
    with Log():
        cw.conv2d(x, w)
        with pytest.raises(Refused, match="reference/gemm cannot serve this call"):
            cw.conv2d(x, w, algorithm=GEMM)
    assert "aten.convolution.default" in seen


def test_a_jit_trace_holds_the_convolution() -> None:
    w = randn(6, 4, 3, 3)
    cw.conv2d(randn(2, 4, 9, 8), w)
    traced = torch.jit.trace(lambda x: cw.conv2d(x, w, activation="relu"), (randn(2, 4, 9, 8),))
    assert "conv" in str(traced.graph)
    x = randn(3, 4, 7, 7, seed=3)
    assert_close(traced(x), F.conv2d(x, w).relu())


def test_a_transform_inside_of_what_is_compiled_and_around_it() -> None:
    x, w = randn(2, 6, 9, 9), randn(8, 6, 3, 3, seed=1)
    expected = torch.func.grad(lambda x: F.conv2d(x, w).sum())(x)
    inside = torch.compile(lambda x: torch.func.grad(lambda x: cw.conv2d(x, w).sum())(x), backend="aot_eager")
    assert_close(inside(x), expected)
    around = torch.func.grad(torch.compile(lambda x: cw.conv2d(x, w).sum(), backend="eager"))
    assert_close(around(x), expected)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (torch.empty(4, 2, 8, 7, 7, dtype=torch.float64), "`out` must have the output's shape"),
        (torch.empty(2, 8, 7, 7, dtype=torch.int32), "`out` must be torch.float64"),
    ],
)
def test_what_cannot_be_written_to_is_refused_where_it_is_compiled(out: Tensor, said: str) -> None:
    compiled = torch.compile(lambda x, w, out: cw.conv2d(x, w, out=out), backend="eager")
    with pytest.raises(BadInput, match=said):
        compiled(randn(2, 6, 9, 9), randn(8, 6, 3, 3), out)


def test_a_residual_without_memory() -> None:
    x, w = torch.empty(2, 6, 9, 9, device="meta"), torch.empty(8, 6, 3, 3, device="meta")
    assert cw.conv2d(x, w, padding=1, residual=torch.empty(2, 8, 9, 9, device="meta")).shape == (2, 8, 9, 9)


@pytest.mark.parametrize("algorithm", ["reference/gemm", "torch/onednn", None])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "transposed"),
    [((2, 4, 8, 8), (1, 4, 3, 3), False), ((2, 4, 3, 3), (5, 4, 3, 3), False), ((2, 4, 8, 8), (4, 1, 3, 3), True)],
)
@pytest.mark.parametrize("last", [(False, False), (True, True), (True, False), (False, True)], ids=str)
def test_strides_along_single_elements_are_those_that_a_compiler_counts_on(
    algorithm: str | None, x_shape: tuple[int, ...], w_shape: tuple[int, ...], transposed: bool, last: tuple[bool, bool]
) -> None:
    formats = [torch.channels_last if each else torch.contiguous_format for each in last]
    x, w = randn(*x_shape).contiguous(memory_format=formats[0]), randn(*w_shape).contiguous(memory_format=formats[1])
    name, direction = ("conv_transpose2d", "backward_data") if transposed else ("conv2d", "forward")
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: getattr(cw, name)(x, w), backend="eager")
    with nullcontext() if algorithm is None else cw.algorithms(strict=False, **{direction: algorithm}):
        y = compiled(x, w)
    assert y.stride() == getattr(F, name)(x, w).stride()
