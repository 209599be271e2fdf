"""A captured chain computes what its plans compute one by one, whatever happens to memory and streams around it."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.eager import decision
from convwright.engine.chains.chain import Chain
from convwright.engine.chains.layer import from_sequential
from convwright.engine.chains.steps import problems_of
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning import session as session_module
from convwright.tuning.session import Session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]

TORCH, TRITON, GEMM, ENGINE = "torch/default", "triton/implicit-gemm", "reference/gemm", "an engine of cuDNN's"
ALGORITHMS = [(TRITON, TRITON), (ENGINE, ENGINE), (TORCH, TORCH), (TRITON, ENGINE), (ENGINE, TORCH), (GEMM, TRITON)]
LARGEST_ERROR = 2e-3  # relative L2, two layers of fp16


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(Mode.OFF, Store.open(None))
    monkeypatch.setattr(decision, "session", lambda: session)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 48, 3, stride=2, padding=1), nn.ReLU()
    return nn.Sequential(*layers).to("cuda", torch.float16, memory_format=torch.channels_last)


def images(seed: int = 0) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(8, 32, 28, 28, generator=generator, device="cuda", dtype=torch.float16)
    return x.contiguous(memory_format=torch.channels_last)


def chain_of(model: nn.Sequential, algorithms: Sequence[str]) -> Chain:
    """A chain in which ``ENGINE`` stands for the first engine that cuDNN proposes for that layer."""
    layers, x = from_sequential(model), images()
    named = [
        first_engine(problem) if algorithm is ENGINE else algorithm
        for algorithm, problem in zip(algorithms, problems_of(layers, x), strict=True)
    ]
    return Chain(layers, x, algorithm=named)


def first_engine(problem: ConvProblem) -> str:
    offers = listing.of_family("cudnn/", problem, device_facts("cuda"), Policy())
    engines = [offer.id for offer in offers if isinstance(offer, Candidate) and "/engine-" in offer.id]
    assert engines, offers
    return engines[0]


def exact(model: nn.Sequential, x: Tensor) -> Tensor:
    """In float64 from the same weights; the activation between the layers is not rounded."""
    wide = nn.Sequential(nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 48, 3, 2, 1), nn.ReLU()).double().cuda()
    wide.load_state_dict(model.state_dict())
    with torch.no_grad():
        return wide(x.double())


def check(model: nn.Sequential, x: Tensor, got: Tensor) -> None:
    wanted = exact(model, x)
    error = ((got.double() - wanted).norm() / wanted.norm()).item()
    assert error <= LARGEST_ERROR, f"{error:.2e}"


def eager(chain: Chain, model: nn.Sequential, x: Tensor) -> Tensor:
    """The chain's own plans, called one by one on memory of their own."""
    with torch.no_grad():
        for choice, layer in zip(chain.choices, from_sequential(model), strict=True):
            plan = choice.plan()
            x = plan(x, plan.prepare(layer.weight.detach()), layer.bias)
    return x


def poison(chain: Chain) -> None:
    chain.arena.fill_(0xFF)
    chain.output.fill_(math.nan)


@pytest.mark.parametrize("algorithms", ALGORITHMS)
def test_the_captured_result_is_the_eager_one(model: nn.Sequential, algorithms: tuple[str, str]) -> None:
    chain = chain_of(model, algorithms)
    for seed in range(4):
        x = images(seed)
        poison(chain)
        got = chain(x)
        check(model, x, got)
        if all(choice.candidate.deterministic for choice in chain.choices):
            assert torch.equal(got, eager(chain, model, x))
        else:
            torch.testing.assert_close(got, eager(chain, model, x), rtol=4e-3, atol=4e-3)
    assert got is chain.output
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("algorithms", ALGORITHMS)
def test_replays_take_no_memory(model: nn.Sequential, algorithms: tuple[str, str]) -> None:
    chain, x = chain_of(model, algorithms), images(1)
    result = torch.empty_like(chain.output)
    chain(x, out=result)
    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(100):
        chain(x, out=result)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (allocated, reserved)
    check(model, x, result)


@pytest.mark.parametrize("algorithms", ALGORITHMS)
def test_it_outlives_everything_around_it(model: nn.Sequential, algorithms: tuple[str, str]) -> None:
    chain, x = chain_of(model, algorithms), images(2)
    wanted = chain(x).clone()
    saved = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.data = torch.full_like(parameter, math.nan)
    session_module._plan.cache_clear()  # the session's memory of plans is not what keeps a chain's alive
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    unrelated = [torch.full((size,), math.nan, device="cuda") for size in (100, 10_000, 1_000_000, 20_000_000)]
    poison(chain)
    assert torch.equal(chain(x), wanted)
    assert all(bool(tensor.isnan().all()) for tensor in unrelated)
    model.load_state_dict(saved)
    check(model, x, chain(x))


@pytest.mark.parametrize("algorithms", ALGORITHMS)
def test_calls_on_several_streams_do_not_mix(model: nn.Sequential, algorithms: tuple[str, str]) -> None:
    chain = chain_of(model, algorithms)
    inputs = [images(seed) for seed in range(12)]
    results = [torch.full_like(chain.output, math.nan) for _ in inputs]
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for number, (x, result) in enumerate(zip(inputs, results, strict=True)):
        with torch.cuda.stream(streams[number % 3]):
            chain(x, out=result)
    torch.cuda.synchronize()
    for x, result in zip(inputs, results, strict=True):
        check(model, x, result)


def test_a_chain_built_on_a_stream_of_its_own_runs_on_another(model: nn.Sequential) -> None:
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        chain = chain_of(model, (TRITON, ENGINE))
    x = images(3)
    check(model, x, chain(x))


def test_two_chains_do_not_share_what_they_write(model: nn.Sequential) -> None:
    one, other = chain_of(model, (TRITON, ENGINE)), chain_of(model, (TRITON, ENGINE))
    x, y = images(4), images(5)
    first, second = one(x), other(y)
    check(model, x, first)
    check(model, y, second)
