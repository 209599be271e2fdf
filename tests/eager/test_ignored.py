"""Algorithms that nothing uses are said once, names that nothing has at once, and what is no must never fails."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import convwright as cw
from convwright.errors import BadInput, IgnoredWarning
from convwright.tuning.session import session

# Each test has names of its own: a block with the same names says only once that nothing used it.
X, W = torch.randn(1, 4, 9, 9), torch.randn(8, 4, 3, 3)


def test_algorithms_around_a_plain_model_say_once_that_they_had_no_effect() -> None:
    layer = nn.Conv2d(4, 8, 3)

    def run() -> None:
        for _ in range(2):
            with cw.algorithms(forward="reference/direct", backward_data="reference/kn2row"):
                layer(X)

    with pytest.warns(IgnoredWarning, match=r"^cw\.algorithms had no effect: .*; call cw\.enable\(\) before") as seen:
        run()
    assert [each.filename for each in seen] == [__file__]


@pytest.mark.parametrize("way", ["a call", "enabled", "converted", "auto", "an error"])
def test_algorithms_that_are_used_or_ask_for_nothing_say_nothing(way: str) -> None:
    layer = nn.Conv2d(4, 8, 3)
    named = {"forward": "auto"} if way == "auto" else {"forward": "reference/gemm", "backward_weight": "reference/fft"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if way == "a call":
            with cw.algorithms(**named):
                cw.conv2d(X, W)
        elif way == "enabled":
            with cw.enabled(), cw.algorithms(**named, strict=False):
                layer(X)
        elif way == "converted":
            with cw.algorithms(**named, strict=False):
                cw.convert(layer)(X)
        elif way == "auto":
            with cw.algorithms(**named):
                layer(X)
        else:
            with pytest.raises(ZeroDivisionError), cw.algorithms(forward="reference/kn2row"):
                _ = 1 / 0


UNKNOWN = [
    ("reference/gemmm", "no algorithm is called 'reference/gemmm'; the nearest is 'reference/gemm'"),
    ("gemm", "no algorithm is called 'gemm'; the nearest is 'cudnn/gemm'"),
    ("magic", "no algorithm is called 'magic'; there are cudnn/"),
    ("cudnn/fft-tilling", "the nearest is 'cudnn/fft-tiling'"),
    ("triton/implicit-gem", "the nearest is 'triton/implicit-gemm'"),
    ("user/mine", "no algorithm is called 'user/mine'"),
    ("relayout(nhwc, reference/gemmm)", "no algorithm is called 'reference/gemmm'"),
    ("unfused(reference/gemm)", "no rewrite is called 'unfused'; the nearest is 'unfuse'"),
]


@pytest.mark.parametrize(("name", "sentence"), UNKNOWN, ids=[name for name, _ in UNKNOWN])
def test_a_name_that_nothing_has_is_refused_at_once(name: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=r"^`backward_data`: no .*") as raised, cw.algorithms(backward_data=name):
        pass
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(BadInput, match=r"^`choices\['\*'\]`: no ") as raised:
        cw.convert(
            nn.Sequential(nn.Conv2d(3, 4, 3)), choices={"*": {"forward": "torch/default", "backward_data": name}}
        )
    assert sentence in str(raised.value)


KNOWN = [
    "torch/default", "torch/cudnn", "torch/onednn-fused", "cudnn/engine-20[k2=1,k13=2]", "cudnn/7", "cudnn/algo-1",
    "cudnn/fft-tiling", "triton/implicit-gemm-3xtf32[bm=64]", "triton/staged-gemm", "triton/few-weights",
    "reference/winograd[m=4]", "relayout(nhwc, pad-c(4, cudnn/engine-48[k2=1,k13=2]))",
    "split-batch( 2,torch/default )",
]  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_names_that_some_machine_or_problem_has_are_taken(name: str) -> None:
    cw.convert(nn.Conv2d(3, 4, 3), choices={"*": name})


def test_every_candidate_of_a_search_has_a_known_name() -> None:
    found = cw.find("ic4ih9oc8kh3 ep:bias+relu", mode="heuristic", device="h200")
    named = [verdict.finding.candidate.id for verdict in found.verdicts]
    assert len(named) > 20
    for name in named:
        cw.convert(nn.Conv2d(3, 4, 3), choices={"*": name})


def test_a_problem_without_the_configuration_is_computed_freely_where_it_is_no_must() -> None:
    choices = {"*": "reference/winograd[m=5]"}
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 1, stride=2))
    expected = model(X)
    with pytest.raises(BadInput, match="is not a configuration here"):
        cw.convert(model, choices=choices)(X)
    converted = cw.convert(model, choices=choices, strict=False)
    torch.testing.assert_close(converted(X), expected)
    converted(X).sum().backward()
    assert {layer.choices["forward"] for layer in converted} == {"torch/default"}
    with cw.algorithms(forward="reference/winograd[m=5]", strict=False):
        torch.testing.assert_close(cw.conv2d(X, W), nn.functional.conv2d(X, W), rtol=1e-4, atol=1e-4)


def test_what_is_no_must_does_not_search_at_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU no call searches, so this lets calls search there, as they do on a GPU."""
    monkeypatch.setattr(session(), "searches_on", ("cpu",))
    before = session().spent_us
    model = cw.convert(nn.Sequential(nn.Conv2d(4, 8, 3)), choices={"*": "triton/implicit-gemm"}, strict=False)
    with torch.no_grad():
        for size in range(7, 12):
            model(torch.randn(1, 4, size, size))
    assert session().spent_us == before


@pytest.mark.parametrize("strict", [1, "no"])
def test_strict_is_true_or_false(strict: object) -> None:
    with pytest.raises(BadInput, match=r"^`strict` must be True or False, got"):
        cw.convert(nn.Conv2d(3, 4, 3), strict=strict)  # type: ignore[arg-type]
