"""A chain computes what PyTorch's sequence computes, from an arena in which nothing overlaps that lives together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from convwright.backends.reference.gemm import GemmPlan
from convwright.core.policy import Policy
from convwright.eager import decision
from convwright.engine.chains.chain import Chain
from convwright.engine.chains.layer import ConvLayer, from_sequential
from convwright.errors import BadInput
from convwright.graph.memory_plan import ALIGNMENT_BYTES
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.session import Session

GEMM, TORCH = "reference/gemm", "torch/default"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.fixture(autouse=True, scope="module")
def untuned() -> Iterator[None]:
    """No search and no store: what is not named runs as PyTorch runs it."""
    session = Session(Mode.OFF, Store.open(None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "session", lambda: session)
        yield


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=4),
        nn.ReLU(),
        nn.Conv2d(16, 8, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(8, 5, 1),
    ).to(dtype)


def images(dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(2, 3, 12, 11, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def poisoned(chain: Chain, x: Tensor) -> Tensor:
    """The chain's answer; where it trusts anything that an earlier call left behind, NaN comes out."""
    chain.arena.fill_(0xFF)
    chain.output.fill_(math.nan)
    return chain(x)


@pytest.mark.parametrize("algorithm", [GEMM, TORCH, None, (GEMM, TORCH, None, GEMM)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_computes_what_the_sequence_computes(
    dtype: torch.dtype, memory_format: torch.memory_format, algorithm: str | Sequence[str | None] | None
) -> None:
    model, x = network(dtype), images(dtype).to(memory_format=memory_format)
    chain = Chain(from_sequential(model), x, algorithm=algorithm)
    for seed in (1, 2, 3):
        x = images(dtype, seed)
        expected = model.double()(x.double())
        got = poisoned(chain, x).double()
        assert (got - expected).norm() <= TOLERANCE[dtype] * expected.norm()
    assert chain.output.is_contiguous(memory_format=memory_format)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[list[ConvLayer], Tensor]:
    """A few layers of small integers, so that every sum is exact, and an input for them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))

    def integers(*shape: int) -> Tensor:
        return torch.randint(-1, 2, shape, generator=generator).double()

    channels, groups = draw(st.integers(1, 2)) * 2, draw(st.sampled_from([1, 2]))
    x, layers = integers(draw(st.integers(1, 3)), channels, 7, 9), []
    for _ in range(draw(st.integers(1, 6))):
        taps, out = draw(st.sampled_from([1, 3])), 2 * draw(st.integers(1, 3))
        layers.append(
            ConvLayer(
                integers(out, channels // groups, taps, taps),
                integers(out) if draw(st.booleans()) else None,
                stride=draw(st.sampled_from([1, (1, 2)])),
                padding=draw(st.integers(1, 2)),
                groups=groups,
                activation=draw(st.sampled_from([None, "relu"])),
            )
        )
        channels = out
    return layers, x.to(memory_format=draw(st.sampled_from([torch.contiguous_format, torch.channels_last])))


def by_pytorch(layers: Sequence[ConvLayer], x: Tensor) -> Tensor:
    for layer in layers:
        x = nn.functional.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        x = x.relu() if layer.activation else x
    return x


@settings(max_examples=60, deadline=None)
@given(stack=stacks(), data=st.data())
def test_nothing_overlaps_that_lives_together(stack: tuple[list[ConvLayer], Tensor], data: st.DataObject) -> None:
    layers, x = stack
    algorithms = [data.draw(st.sampled_from([GEMM, TORCH])) for _ in layers]
    chain = Chain(layers, x, algorithm=algorithms)
    assert torch.equal(poisoned(chain, x), by_pytorch(layers, x))
    offsets, begin = chain.memory_plan.offsets, chain.arena.data_ptr()
    assert begin % ALIGNMENT_BYTES == 0
    assert chain.arena.numel() == chain.arena_bytes
    for step in range(len(layers)):
        alive = [buffer for buffer in chain.buffers if buffer.first <= step <= buffer.last]
        spans = sorted((offsets[buffer.name], offsets[buffer.name] + buffer.nbytes) for buffer in alive)
        assert all(start % ALIGNMENT_BYTES == 0 and end <= chain.arena_bytes for start, end in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_every_activation_is_alive_from_its_writer_to_its_reader() -> None:
    chain = Chain(from_sequential(network()), images(), algorithm=(GEMM, TORCH, GEMM, TORCH))
    lives = {buffer.name: (buffer.first, buffer.last) for buffer in chain.buffers}
    assert lives == {
        "activation 0": (0, 1), "activation 1": (1, 2), "activation 2": (2, 3),
        "workspace 0": (0, 0), "workspace 2": (2, 2),
    }  # fmt: skip
    assert {buffer.name: buffer.nbytes for buffer in chain.buffers}["activation 2"] == 2 * 8 * 6 * 6 * 4


def test_the_arena_is_smaller_than_what_lies_in_it() -> None:
    chain = Chain(from_sequential(network()), images(), algorithm=GEMM)
    nbytes = {buffer.name: buffer.nbytes for buffer in chain.buffers}
    assert chain.arena_bytes < sum(nbytes.values())
    workspaces = [size for name, size in nbytes.items() if name.startswith("workspace")]
    assert chain.workspace_bytes == max(workspaces)
    assert chain.arena_bytes < sum(workspaces)


def test_the_choices_are_those_that_were_asked_for() -> None:
    algorithms = (GEMM, TORCH, GEMM, None)
    chain = Chain(from_sequential(network()), images(), algorithm=algorithms)
    assert [choice.candidate.id for choice in chain.choices] == [GEMM, TORCH, GEMM, TORCH]
    assert str(chain.choices[0].candidate.problem.epilogue) == "bias+relu"


def test_weights_are_packed_once_and_are_the_chains_own(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[tuple[int, ...]] = []
    prepare = GemmPlan.prepare

    def counted(plan: GemmPlan, weight: Tensor) -> Tensor:
        packed.append(tuple(weight.shape))
        return prepare(plan, weight)

    monkeypatch.setattr(GemmPlan, "prepare", counted)
    model, x = network(), images()
    chain = Chain(from_sequential(model), x, algorithm=GEMM)
    before = chain(x).clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    assert torch.equal(chain(x), before)
    assert packed == [(16, 3, 3, 3), (16, 4, 3, 3), (8, 16, 3, 3), (5, 8, 1, 1)]


def test_the_result_can_be_copied_out_and_the_input_lie_anyhow() -> None:
    model, x = network(), images().requires_grad_()
    chain = Chain(from_sequential(model), x, algorithm=GEMM)
    first = chain(x, out=torch.empty_like(chain.output))
    assert chain(images(seed=2)) is chain.output
    assert not torch.equal(chain.output, first)
    assert torch.equal(chain(images().mT.contiguous().mT), first)
    assert not first.requires_grad


def test_inference_mode_and_autocast_change_nothing() -> None:
    model, x = network(), images()
    with torch.inference_mode(), torch.autocast("cpu"):
        chain = Chain(from_sequential(model), x, algorithm=(GEMM, TORCH, TORCH, TORCH))
        inside = chain(images(seed=2)).clone()
    assert torch.equal(chain(images(seed=2)), inside)
    assert torch.allclose(inside, model(images(seed=2)), atol=1e-6)


def test_one_and_three_dimensions_and_a_single_layer() -> None:
    for convolution, size in ((nn.Conv1d, (9,)), (nn.Conv3d, (5, 6, 7))):
        model, x = nn.Sequential(convolution(2, 3, 3, padding="same"), nn.ReLU()), torch.randn(2, 2, *size)
        chain = Chain(from_sequential(model), x, algorithm=TORCH)
        assert chain.arena_bytes == chain.workspace_bytes == 0
        assert torch.allclose(chain(x), model(x), atol=1e-6)


@pytest.mark.parametrize(
    ("x", "given"),
    [
        (torch.zeros(2, 3, 12, 12), r"got \(2, 3, 12, 12\) torch.float32 on cpu"),
        (torch.zeros(1, 3, 12, 11), r"got \(1, 3, 12, 11\)"),
        (torch.zeros(2, 3, 12, 11, dtype=torch.float16), "got .* torch.float16 on cpu"),
        (torch.zeros(2, 3, 12, 11, device="meta"), "got .* torch.float32 on meta"),
        ([1.0], "must be a tensor, got list"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(x: Tensor, given: str) -> None:
    chain = Chain(from_sequential(network()), images(), algorithm=TORCH)
    with pytest.raises(BadInput, match=given):
        chain(x)
    with pytest.raises(BadInput, match="`out` must be"):
        chain(images(), out=x)


def test_layers_that_do_not_fit_are_refused_by_their_number() -> None:
    x, first = torch.zeros(1, 2, 4, 4), ConvLayer(torch.zeros(4, 2, 3, 3))
    for second, message in (
        (ConvLayer(torch.zeros(4, 3, 1, 1)), "layer 1: `weight` must have in_channels / groups"),
        (ConvLayer(torch.zeros(4, 4, 1, 1).double()), "layer 1: `weight` must be torch.float32 on cpu like the"),
        (ConvLayer(torch.zeros(4, 4, 1)), "layer 1: `weight` must have 4 dimensions"),
        (ConvLayer(torch.zeros(4, 4, 3, 3)), "layer 1: the filter reaches over 3 elements"),
        (ConvLayer(torch.zeros(4, 4, 1, 1), stride=(1, 1, 1)), "layer 1: `stride` must be an int or 2 ints"),
    ):
        with pytest.raises(BadInput, match=message):
            Chain([first, second], x)
    with pytest.raises(BadInput, match="at least one layer"):
        Chain([], x)
    with pytest.raises(BadInput, match=r"made of ConvLayers, .* got Conv2d"):
        Chain(network(), x)
    with pytest.raises(BadInput, match="must not be empty"):
        Chain([first], x[:0])
    with pytest.raises(BadInput, match="one for each of 1 layers, got 2"):
        Chain([first], x, algorithm=[TORCH, TORCH])
    with pytest.raises(BadInput, match=r"`bias` must have shape \(4,\)"):
        ConvLayer(torch.zeros(4, 2, 3, 3), torch.zeros(3))


def test_a_policy_is_asked_for_constant_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Policy] = []

    class Asked(Session):
        def answer(self, problem, device, policy, *rest, **more):  # type: ignore[no-untyped-def]
            asked.append(policy)
            return super().answer(problem, device, policy, *rest, **more)

    monkeypatch.setattr(decision, "session", lambda: Asked(Mode.OFF, Store.open(None)))
    Chain([ConvLayer(torch.zeros(1, 1, 1, 1))], torch.zeros(1, 1, 1, 1), policy=Policy(deterministic=True))
    assert asked == [Policy(deterministic=True, weights="constant", objective="device-time")]
