"""Whole networks on a GPU: one CUDA graph, any stream, slices of one buffer, saved and loaded."""

from __future__ import annotations

import copy
import gc
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright import torch_api
from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.engine import Engine
from convwright.engine.loaded import load
from convwright.engine.optimize import optimize
from convwright.errors import BackendError, Refused
from convwright.graph.operations import Join
from convwright.settings import Mode
from convwright.tuning import session
from engine.random_network import RandomNetwork

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


@pytest.fixture(autouse=True)
def _exact_float32() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class Dense(nn.Module):
    """A block in which each layer reads all before it."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Conv2d(32 + 16 * place, 16, 3, padding=1) for place in range(layers))
        self.last = nn.Conv2d(32 + 16 * layers, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = [F.relu(x)]
        for layer in self.layers:
            found.append(F.relu(layer(torch.cat(found, 1))))
        return self.last(torch.cat(found, 1))


def check(engine: Engine, model: nn.Module, x: Tensor, *, times: float = 4.0) -> None:
    """Errors against float64, at most so many times those of the model itself."""
    with torch.no_grad():
        own = torch_api.flatten(model(x))[0]
        exact = torch_api.flatten(copy.deepcopy(model).double()(x.double()))[0]
    for _ in range(2):
        got = torch_api.flatten(engine(x))[0]
        for mine, theirs, right in zip(got, own, exact, strict=True):
            scale = right.abs().max().item() or 1.0
            allowed = times * (theirs - right).abs().max().item() + torch.finfo(x.dtype).eps * scale
            assert (mine - right).abs().max().item() <= allowed


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    model, x = RandomNetwork(seed).cuda(), torch.randn(2, 4, 8, 8, device="cuda")
    check(optimize(model, x, mode=Mode.HEURISTIC), model, x)


@pytest.mark.alone
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_dense_block_lies_in_one_buffer(dtype: torch.dtype) -> None:
    model, x = Dense().cuda().to(dtype).eval(), torch.randn(4, 32, 64, 64, device="cuda", dtype=dtype)
    engine = optimize(model, x)
    check(engine, model, x)
    joined = [step for step in engine.assignment.steps if step.name.startswith("cat")]
    assert any(isinstance(step.operation, Join) for step in joined)


def test_any_stream_and_inputs_one_after_the_other() -> None:
    model = Dense(2).cuda().eval()
    inputs = [torch.randn(4, 32, 32, 32, device="cuda") for _ in range(6)]
    engine, stream = optimize(model, inputs[0], mode=Mode.HEURISTIC), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    outputs = []
    for place, x in enumerate(inputs):
        with torch.cuda.stream(stream if place % 2 else torch.cuda.current_stream()):
            outputs.append(engine(x))
    torch.cuda.synchronize()
    with torch.no_grad():
        for x, y in zip(inputs, outputs, strict=True):
            torch.testing.assert_close(y, model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.alone
def test_step_times_add_up_to_the_run() -> None:
    model, x = Dense().cuda().half().eval(), torch.randn(16, 32, 128, 128, device="cuda", dtype=torch.float16)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    times_us, graph = engine.step_times([x]), torch.cuda.CUDAGraph()
    assert all(time_us >= 0 for time_us in times_us)
    with torch.cuda.graph(graph):
        y = engine(x)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    begun.record()
    for _ in range(20):
        graph.replay()
    ended.record()
    ended.synchronize()
    assert y.shape == (16, 8, 128, 128)
    # The input's copy and the output's come on top.
    assert sum(times_us) <= 1.1 * begun.elapsed_time(ended) * 1e3 / 20


@pytest.mark.alone
def test_the_same_bits_from_a_folder(tmp_path: Path) -> None:
    model, x = Dense().cuda().half().eval(), torch.randn(4, 32, 64, 64, device="cuda", dtype=torch.float16)
    engine = optimize(model, x)
    engine.save(tmp_path)
    assert torch.equal(load(tmp_path, "cuda")(x), engine(x))


def test_runs_take_no_memory_of_their_own() -> None:
    model, x = Dense(2).cuda().eval(), torch.randn(4, 32, 32, 32, device="cuda")
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    engine(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(50):
        engine(x)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_it_outlives_everything_around_it() -> None:
    model, x = Dense(2).cuda().eval(), torch.randn(4, 32, 32, 32, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        engine, other = (optimize(model, x, mode=Mode.HEURISTIC) for _ in range(2))
    wanted = engine(x)
    for parameter in model.parameters():
        parameter.data = torch.full_like(parameter, math.nan)
    session.session().forget()
    session._plan.cache_clear()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    unrelated = [torch.full((size,), math.nan, device="cuda") for size in (100, 10_000, 1_000_000, 20_000_000)]
    engine._program.arena.memory.fill_(0xFF)
    assert torch.equal(engine(x), wanted)
    assert torch.equal(other(x + 1), engine(x + 1))
    assert all(bool(tensor.isnan().all()) for tensor in unrelated)


class Correlated(nn.Module):
    """A product over so many places that cuBLAS adds up parts of it in its workspace."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        places = self.conv(x).flatten(2)
        return torch.bmm(places, places.transpose(1, 2))


@pytest.mark.alone
def test_a_graph_keeps_the_workspace_of_cublas_that_pytorch_frees() -> None:
    model, x = Correlated().cuda().eval(), images(1, 8, 256, 256)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    wanted = engine(x)
    torch._C._cuda_clearCublasWorkspaces()  # as `torch.compile` does
    torch.cuda.empty_cache()
    unrelated = [torch.zeros(32 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    assert torch.equal(engine(x), wanted)
    assert not any(bool(tensor.any()) for tensor in unrelated)
    engine.profile(x)
    assert torch.equal(engine(x), wanted)


class Pixels(nn.Module):
    """As of a ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(32, 32, 7, padding=3, groups=32), nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_pixelwise_layers_are_convolutions(dtype: torch.dtype) -> None:
    model, x = Pixels().cuda().to(dtype).eval(), torch.randn(8, 32, 28, 28, device="cuda", dtype=dtype)
    check(optimize(model, x, mode=Mode.HEURISTIC), model, x)


def test_new_weights_and_clones() -> None:
    model, other, x = Dense(2).cuda().eval(), Dense(2).cuda().eval(), torch.randn(4, 32, 32, 32, device="cuda")
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.1)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    before, clone = engine(x), engine.clone()
    engine.update(other)
    check(engine, other, x)
    assert torch.equal(clone(x), before)
    check(clone, model, x)


def test_a_profile_and_a_comparison() -> None:
    model, x = Dense(2).cuda().half().eval(), torch.randn(4, 32, 32, 32, device="cuda", dtype=torch.float16)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    assert len(engine.profile(x).steps) == len(engine.assignment.steps)
    assert engine.compare(model, x).first_over is None
    report = engine.memory_report()
    assert report.plan.lower_bound <= report.arena == engine.arena_bytes


class Sums(nn.Module):
    """An output and a tensor between steps that PyTorch's own operator makes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = torch.cumsum(self.one(x).relu(), 2)
        return {"sums": torch.cumsum(y, 3) / 32, "y": self.two(y) / 32}


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def near(got: object, right: object) -> None:
    for mine, wanted in zip(torch_api.flatten(got)[0], torch_api.flatten(right)[0], strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [Dense, Sums])
def test_buckets_pad_split_and_take_turns_on_any_stream(kind: type[nn.Module]) -> None:
    model = kind().cuda().eval()
    engine, stream = optimize(model, images(1, 32, 16, 16), mode=Mode.HEURISTIC, buckets=[1, 4]), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    small, large = engine.engines.values()
    assert small._program.arena is large._program.arena
    assert engine.arena_bytes == max(small.arena_bytes, large.arena_bytes)
    batches = [images(batch, 32, 16, 16) for batch in (1, 3, 4, 6, 1, 9, 2)]
    torch.cuda.synchronize()
    outputs = []
    for place, x in enumerate(batches):
        with torch.cuda.stream(stream if place % 2 else torch.cuda.current_stream()):
            outputs.append(engine(x))
    torch.cuda.synchronize()
    with torch.no_grad():
        for x, y in zip(batches, outputs, strict=True):
            near(y, model(x))


def test_weights_are_once_in_the_gpus_memory() -> None:
    """Packed where kernels read them so; as they came they are in the host's."""
    layers = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1))
    model, x = layers.cuda().eval(), images(2, 256, 16, 16)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    assert engine.memory_report().weights <= 1.1 * sum(each.nbytes for each in model.parameters())
    assert {each.device.type for each in engine.constants.values()} == {"cpu"}
    assert engine.compare(model, x).first_over is None
    engine.update(model)
    with torch.no_grad():
        near(engine(x), model(x))


def test_weights_of_buckets_are_kept_once() -> None:
    model = Dense().cuda().eval()
    engine = optimize(model, images(1, 32, 16, 16), mode=Mode.HEURISTIC, buckets=[2, 4])
    alone = sum(each.memory_report().weights for each in engine.engines.values())
    assert engine.memory_report().weights < alone
    small, large = engine.engines.values()
    assert {id(each) for each in small.constants.values()} == {id(each) for each in large.constants.values()}


@pytest.mark.parametrize("kind", [Dense, Sums])
def test_fixed_tensors_stay_where_they_are_on_any_stream(kind: type[nn.Module]) -> None:
    model, x = kind().cuda().eval(), images(4, 32, 16, 16)
    engine, stream = optimize(model, x, mode=Mode.HEURISTIC), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    places = [each.data_ptr() for each in torch_api.flatten((engine.input, engine.output))[0]]
    batches = [images(4, 32, 16, 16) for _ in range(6)]
    torch.cuda.synchronize()
    outputs = []
    for place, each in enumerate(batches):
        with torch.cuda.stream(stream if place % 2 else torch.cuda.current_stream()):
            engine.input.copy_(each)
            outputs.append([tensor.clone() for tensor in torch_api.flatten(engine.run())[0]])
    torch.cuda.synchronize()
    assert places == [each.data_ptr() for each in torch_api.flatten((engine.input, engine.output))[0]]
    with torch.no_grad():
        for each, made in zip(batches, outputs, strict=True):
            near(made, model(each))
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(20):
        engine.run()
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


@pytest.mark.parametrize("kind", [Dense, Sums])
def test_buckets_and_fixed_tensors_inside_a_users_graph(kind: type[nn.Module]) -> None:
    model, x = kind().cuda().eval(), images(7, 32, 16, 16)
    engine = optimize(model, x, mode=Mode.HEURISTIC, buckets=[1, 4])
    small = engine.engines[1]
    engine(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = engine(x)  # 4 images, and 3 that are padded
        small.input.copy_(x[:1])
        small.run()
    for _ in range(3):
        x.copy_(images(7, 32, 16, 16))
        graph.replay()
        torch.cuda.synchronize()
        with torch.no_grad():
            near(y, model(x))
            near(small.output, model(x[:1]))
        near(engine(x), y)


def test_two_clones_in_two_threads() -> None:
    model = Sums().cuda().eval()
    engine = optimize(model, images(1, 32, 16, 16), mode=Mode.HEURISTIC, buckets=[1, 4])
    engines, batches = (engine, engine.clone()), [images(batch, 32, 16, 16) for batch in (1, 3, 4, 6)]
    assert engines[0].largest._program.arena is not engines[1].largest._program.arena
    expected = [torch_api.flatten(engine(x))[0] for x in batches]
    torch.cuda.synchronize()

    def runs(each: BucketedEngine) -> list[list[Tensor]]:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            made = [torch_api.flatten(each(x))[0] for _ in range(25) for x in batches]
            torch.cuda.current_stream().synchronize()
        return made

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(runs, each) for each in engines]:
            for got, right in zip(done.result(), expected * 25, strict=True):
                near(got, right)


def test_buckets_from_a_folder_and_with_new_weights(tmp_path: Path) -> None:
    model, other, x = Dense(2).cuda().eval(), Dense(2).cuda().eval(), images(6, 32, 16, 16)
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.1)
    engine = optimize(model, x, mode=Mode.HEURISTIC, buckets=[1, 4])
    engine.save(tmp_path)
    again, clone, before = load(tmp_path, "cuda"), engine.clone(), engine(x)
    assert torch.equal(again(x), before)
    engine.update(other)
    assert torch.equal(clone(x), before)
    with torch.no_grad():
        for batch in (1, 3, 6):
            near(engine(x[:batch]), other(x[:batch]))
    small, large = engine.engines.values()
    assert small._program.arena is large._program.arena


class Gated(nn.Module):
    """Images that are read twice, so that pointwise steps stand alone and end what they read."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = torch.sigmoid(conv(x))
            x = F.max_pool2d(x, 3, 1, 1) * 0.5 + x.exp()
        return x


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("mode", [Mode.HEURISTIC, Mode.QUICK])
def test_pointwise_steps_write_over_what_ends_there(mode: Mode, dtype: torch.dtype) -> None:
    model, x = Gated().cuda().to(dtype).eval(), torch.randn(4, 16, 61, 67, device="cuda", dtype=dtype)
    engine = optimize(model, x, mode=mode)
    check(engine, model, x)
    found = engine.compare(model, x)
    assert found.first_over is None


@pytest.mark.parametrize("buckets", [None, [1, 4]])
def test_trusted_kernels_run_without_a_compiler(
    buckets: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Gated().cuda().half().eval(), torch.randn(4, 16, 61, 67, device="cuda", dtype=torch.float16)
    engine = optimize(model, x, buckets=buckets)
    engine.save(tmp_path, kernels=True)
    kernels = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert any(each["candidate"].startswith("triton/") for each in kernels)
    wanted = engine(x)

    def refuse(*given: object, **named: object) -> None:
        raise RuntimeError("no compiler is here")

    monkeypatch.setattr("triton.compile", refuse)
    # The binaries come from the file, not from what this process has loaded.
    monkeypatch.setattr("convwright.backends.triton.launching.launch._functions", {})
    assert torch.equal(load(tmp_path, "cuda", trust_kernels=True)(x), wanted)
    with pytest.raises(BackendError, match="no compiler is here"):
        load(tmp_path, "cuda")


@pytest.mark.parametrize("mode", [Mode.HEURISTIC, Mode.QUICK])
def test_a_memory_budget_and_the_models_own_peak(mode: Mode) -> None:
    model, x = Dense().cuda().eval(), torch.randn(4, 32, 64, 64, device="cuda")
    with pytest.raises(Refused, match="the smallest possible is") as raised:
        optimize(model, x, mode=mode, memory_budget=1)
    smallest = int(str(raised.value).rpartition(" ")[2].replace(",", ""))
    engine = optimize(model, x, mode=mode, memory_budget=smallest)
    check(engine, model, x)
    report = engine.memory_report(model, x)
    assert report.peak <= smallest
    assert report.eager is not None
    assert report.eager_peak is not None
    assert 0 < smallest <= report.eager_peak
    assert report.pool is not None
    assert report.context is not None
    assert report.context > 0
    print(report)
