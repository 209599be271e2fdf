"""One engine for several sizes of the input: padded, split, saved, cloned, and with weights that are kept once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.loaded import load
from convwright.engine.optimize import optimize
from convwright.errors import BadInput
from convwright.settings import Mode
from engine.net import Net
from engine.random_network import RandomNetwork


def planned(model: nn.Module, example: Any, buckets: Any) -> BucketedEngine:
    return optimize(model.eval(), example, mode=Mode.HEURISTIC, buckets=buckets)


def flat(outputs: Any) -> list[Tensor]:
    return torch_api.flatten(outputs)[0]


def same(got: Any, right: Any) -> None:
    torch.testing.assert_close(flat(got), flat(right), rtol=1e-4, atol=1e-4)


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1)).eval()


@pytest.fixture(scope="module")
def of_random() -> BucketedEngine:
    """Of a random network, for batches of 1 and 4. Tests share it, and leave it as it is."""
    return planned(RandomNetwork(3), images(1, 4, 8, 8), [1, 4])


def test_a_batch_between_buckets_is_padded_and_one_above_the_largest_is_split(of_random: BucketedEngine) -> None:
    model, made, kept = RandomNetwork(3), of_random, []
    for batch in (1, 2, 4, 5, 11, 3):
        x = torch.randn(batch, 4, 8, 8)
        with torch.no_grad():
            kept.append((made(x), model(x)))
    for got, right in kept:  # no later call writes to outputs
        same(got, right)


@pytest.mark.slow
def test_what_is_planned_in_inference_mode_runs_outside_of_it() -> None:
    model, x = RandomNetwork(3), images(3, 4, 8, 8)
    with torch.inference_mode():
        made = planned(model, images(1, 4, 8, 8), [1, 4])
        clone, right = made.clone(), made(x)
    for each in (made, clone):
        assert all(map(torch.equal, flat(each(x)), flat(right)))


def test_image_sizes_are_those_of_a_bucket() -> None:
    model = convolutions()
    made = planned(model, images(1, 4, 8, 8), [(1, 4, 8, 8), (2, 4, 8, 8), (2, 4, 6, 10)])
    assert list(made.engines) == [(1, 4, 8, 8), (2, 4, 8, 8), (2, 4, 6, 10)]
    for shape in ((1, 4, 8, 8), (3, 4, 8, 8), (2, 4, 6, 10), (5, 4, 6, 10)):
        x = images(*shape)
        same(made(x), model(x))
    for wrong in (images(1, 4, 6, 8), images(0, 4, 8, 8), images(4, 8, 8), "x"):
        with pytest.raises(BadInput, match=r"no bucket takes .* match a bucket, here 1x4x8x8, 2x4x8x8, 2x4x6x10"):
            made(wrong)
    with pytest.raises(BadInput, match=r"must be torch.float32 \(3, 4, 8, 8\), got torch.float64"):
        made(images(3, 4, 8, 8).double())


@pytest.mark.slow
def test_layouts_follow_the_example_and_a_batch_may_lie_as_it_likes() -> None:
    model, last = convolutions(), torch.channels_last
    made = planned(model, images(1, 4, 8, 8).to(memory_format=last), [1, 4])
    for batch in (3, 4, 6):
        x = images(batch, 4, 8, 8).to(memory_format=last)
        with torch.no_grad():
            right = model(x)
        assert made(x).stride() == right.stride()
        same(made(x), right)
        same(made(x.contiguous()), right)


def test_several_inputs_and_nested_outputs() -> None:
    model = Net(lambda self, x, z: {"b": (self.one(x), z * 2), "a": x.mean((2, 3)) + z}, one=nn.Conv2d(4, 4, 1))
    x, z = images(5, 4, 8, 8), images(5, 4)
    made = planned(model, (x, z), [2, ((3, 4, 8, 8), (3, 4))])
    got = made(x, z)
    assert [*got] == ["b", "a"]
    assert type(got["b"]) is tuple
    same(got, model(x, z))
    with pytest.raises(BadInput, match="no bucket takes"):
        made(x, z[:4])


@pytest.mark.first_cases(4)
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda self, x: self.one(x - x.mean(0)), "output 0 of one image depends on the other images of the batch"),
        (lambda self, x: self.one(x - x[:1]), "output 0 of one image depends on the other images of the batch"),
        (lambda self, x: self.one(x) / len(x), "output 0 of one image is not the same in batches of 1 and 3"),
        (lambda self, x: self.one(x).cumsum(0), "output 0 of one image depends on the other images of the batch"),
        (
            lambda self, x: self.one(x) * (1 + (len(x) == 2)),
            "output 0 of one image is not the same in batches of 2 and",
        ),
        (lambda self, x: (self.one(x), x.mean((1, 2, 3)).sum()), "the first dimension of output 1 is not the batch"),
        (
            lambda self, x: self.one(x).mean((2, 3)).squeeze(),
            "the first dimension of output 0 is not the batch in bucket 1",
        ),
        (
            lambda self, x: self.one(x).view((None, 1, 0, 3)[len(x)], 4, 8, 8),
            "the model fails for a batch of 2: shape ",
        ),
    ],
)
def test_where_images_are_not_apart_only_buckets_are_served(function: Any, reason: str, tmp_path: Path) -> None:
    model = Net(function, one=nn.Conv2d(4, 4, 1)).eval()
    made = planned(model, images(1, 4, 8, 8), [1, 3])
    for batch in (1, 3):
        x = images(batch, 4, 8, 8)
        same(made(x), model(x))
    made.save(tmp_path)
    for each in (made, load(tmp_path, "cpu")):
        with pytest.raises(BadInput, match=f"no bucket has a batch of 4, and it cannot be padded or split: .*{reason}"):
            each(images(4, 4, 8, 8))


def test_weights_are_kept_once_and_in_files_too(tmp_path: Path) -> None:
    model = convolutions()
    made = planned(model, images(1, 4, 8, 8), [1, 4])
    alone = optimize(model, images(4, 4, 8, 8), mode=Mode.HEURISTIC)

    def held(*engines: Any) -> int:
        return len({id(each) for each in chain.from_iterable(engine.held for engine in engines)})

    assert held(*made.engines.values()) == held(alone)
    assert made.memory_report().weights == alone.memory_report().weights
    made.save(tmp_path / "several")
    alone.save(tmp_path / "alone")
    sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("several", "alone")]
    assert sizes[0] == sizes[1]


@pytest.mark.slow
def test_constants_that_differ_between_buckets_are_all_saved(tmp_path: Path) -> None:
    model = Net(lambda self, x: self.one(x) + torch.arange(x.shape[-1]).float().sin(), one=nn.Conv2d(4, 4, 1)).eval()
    made = planned(model, images(1, 4, 8, 8), [(1, 4, 8, 8), (2, 4, 6, 9)])
    made.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert isinstance(again, BucketedEngine)
    for shape in ((1, 4, 8, 8), (3, 4, 8, 8), (2, 4, 6, 9)):
        x = images(*shape)
        assert torch.equal(again(x), made(x))
        same(again(x), model(x))


def test_all_buckets_lie_in_one_arena(of_random: BucketedEngine) -> None:
    made = of_random
    small, large = made.engines.values()
    assert made.arena_bytes == large.arena_bytes > small.arena_bytes > 0
    assert small._program.arena is large._program.arena
    report = made.memory_report()
    assert report.arena == made.arena_bytes
    text = made.explain()
    assert text.count("arena: ") == 2
    assert text.startswith("bucket 1:\n")
    assert "\n\nbucket 4:\n" in text


def test_a_saved_engine_and_a_clone_compute_the_same_bits(of_random: BucketedEngine, tmp_path: Path) -> None:
    made = of_random
    made.save(tmp_path)
    again, clone = load(tmp_path, "cpu"), made.clone()
    assert isinstance(again, BucketedEngine)
    assert list(again.engines) == [1, 4]
    inputs = [torch.randn(batch, 4, 8, 8) for batch in (1, 3, 4, 6)]
    expected = [flat(made(x)) for x in inputs]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(lambda each=each: [flat(each(x)) for _ in range(5) for x in inputs])
                for each in (made, clone, again)]  # fmt: skip
        for run in runs:
            for got, right in zip(run.result(), expected * 5, strict=True):
                assert all(map(torch.equal, got, right))


def test_new_weights_reach_all_buckets() -> None:
    model, other = convolutions(), convolutions()
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    made, x = planned(model, images(1, 4, 8, 8), [1, 4]), images(6, 4, 8, 8)
    clone, before = made.clone(), made(x)
    made.update(other)
    same(made(x), other(x))
    assert torch.equal(clone(x), before)
    small, large = made.engines.values()
    assert small._program.arena is large._program.arena
    assert {id(each) for each in small.held} == {id(each) for each in large.held}


@pytest.mark.slow
def test_a_bucket_is_profiled_and_compared() -> None:
    model = convolutions()
    made = planned(model, images(1, 4, 8, 8), [1, 4])
    assert made.profile(images(4, 4, 8, 8)).steps
    assert made.profile().steps
    assert made.compare(model, images(1, 4, 8, 8)).first_over is None
    with pytest.raises(BadInput, match="must have exactly the sizes of a bucket, here 1, 4"):
        made.profile(images(3, 4, 8, 8))


@pytest.mark.parametrize(
    ("buckets", "said"),
    [
        ([], "at least one bucket"),
        ([0], "a bucket is a batch size, a shape"),
        (["1"], "a bucket is a batch size, a shape"),
        ([1, (1, 4, 8, 8)], "two of the buckets 1, 1x4x8x8 have the same sizes"),
        ([(1, 4, 8)], r"must have as many dimensions as `example`, \(1, 4, 8, 8\), got \(1, 4, 8\)"),
        ([((1, 4, 8, 8), (1, 4))], "must have as many dimensions as `example`"),
    ],
)
def test_a_wrong_bucket_is_one_sentence(buckets: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        planned(convolutions(), images(1, 4, 8, 8), buckets)


def test_what_cannot_be_in_buckets_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="leave out `partial` or `buckets`"):
        optimize(convolutions(), images(1, 4, 8, 8), buckets=[1], partial=True)
    with pytest.raises(BadInput, match="the first dimension of every input: give shapes instead"):
        planned(Net(lambda self, x, z: x + z), (images(1, 4, 8, 8), images(4, 8, 8)), [1])
    with pytest.raises(BadInput, match="must hold numbers"):
        planned(convolutions(), images(0, 4, 8, 8), [1])
    with pytest.raises(BadInput, match="training mode"):
        optimize(nn.Conv2d(4, 4, 1), images(1, 4, 8, 8), mode=Mode.HEURISTIC, buckets=[1])
