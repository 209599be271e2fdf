"""Ids of candidates: stable, readable, nested where rewrites are."""

from __future__ import annotations

import pytest

from convwright.core.candidate import Candidate, Config, Source
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

PROBLEM = ConvProblem.of((4, 8, 9, 9), (8, 8, 3, 3))


def leaf(backend: str, algorithm: str, config: Config = ()) -> Candidate:
    return Candidate(PROBLEM, backend, algorithm, config, Arithmetic.FP32, 0, True, Source.RULE)


def around(inner: Candidate, rewrite: str, config: Config) -> Candidate:
    return Candidate(PROBLEM, "rewrite", rewrite, config, inner.arithmetic, 0, True, inner.source, inner)


@pytest.mark.parametrize(
    ("candidate", "id_"),
    [
        (leaf("torch", "default"), "torch/default"),
        (leaf("cudnn", "engine-48", (("k2", 2), ("k13", 2))), "cudnn/engine-48[k2=2,k13=2]"),
        (leaf("triton", "direct", (("bw", 128), ("bh", 1))), "triton/direct[bw=128,bh=1]"),
        (around(leaf("cudnn", "fft-tiling"), "split-batch", (("parts", 4),)), "split-batch(4, cudnn/fft-tiling)"),
        (
            around(around(leaf("cudnn", "gemm"), "split-batch", (("parts", 4),)), "pad-c", (("to", 8),)),
            "pad-c(8, split-batch(4, cudnn/gemm))",
        ),
        (
            around(leaf("torch", "default", (("tf32", "on"),)), "relayout", (("layout", "nhwc"),)),
            "relayout(nhwc, torch/default[tf32=on])",
        ),
        (around(leaf("torch", "default"), "as-2d", ()), "as-2d(torch/default)"),
    ],
)
def test_ids(candidate: Candidate, id_: str) -> None:
    assert candidate.id == id_


def test_the_leaf_is_inside_all_rewrites() -> None:
    inner = leaf("cudnn", "gemm")
    outer = around(around(inner, "split-batch", (("parts", 4),)), "relayout", (("layout", "nhwc"),))
    assert outer.leaf is inner
    assert (outer.depth, inner.depth) == (2, 0)
    assert inner.leaf is inner


def test_candidates_are_keys() -> None:
    assert {leaf("cudnn", "gemm"): 1}[leaf("cudnn", "gemm")] == 1
    assert leaf("cudnn", "gemm") != leaf("cudnn", "gemm", (("math", "tf32"),))
