"""Equal parts of a batch, one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from convwright.core.candidate import Refusal
from convwright.core.problem import ConvProblem
from convwright.rewrites import rewrite
from convwright.tensors import spec_of
from problem_space import operands, oracle, run
from rewrites.around import planned, refused, wrapped


def test_splitting_needs_less_workspace() -> None:
    problem = ConvProblem.parse("mb8ic8ih9oc8kh3")
    whole, split = wrapped(problem, ()), wrapped(problem, (("split-batch", (("parts", 8),)),))
    assert whole.workspace_bytes is not None
    assert split.workspace_bytes is not None
    assert split.workspace_bytes < whole.workspace_bytes / 4


def test_a_batch_that_does_not_divide_is_refused_in_words() -> None:
    six, none = (ConvProblem.of((images, 8, 9, 9), (8, 8, 3, 3)) for images in (6, 0))
    assert refused("split-batch", six) == [
        Refusal(f"split-batch({parts})", f"a batch of 6 cannot be split into {parts} equal parts") for parts in (4, 8)
    ]
    assert refused("split-batch", none) == [
        Refusal("split-batch", "a batch of 0 cannot be split into 2, 4 or 8 equal parts")
    ]


@pytest.mark.parametrize(("images", "parts"), [(8, 2), (8, 8), (4, 4)])
def test_the_inner_problem_describes_every_slice(images: int, parts: int) -> None:
    x = torch.empty(images, 3, 5, 5, dtype=torch.float16)
    problem = ConvProblem.of(x.shape, (4, 3, 3, 3), dtype="fp16")
    inner = rewrite("split-batch").inner(replace(problem, x=spec_of(x)), (("parts", parts),))
    for part in x.chunk(parts):
        found = spec_of(part)
        assert found.alignment >= inner.x.alignment
        assert replace(found, alignment=inner.x.alignment) == inner.x


def test_half_types_survive_a_split() -> None:
    problem = ConvProblem.parse("mb4ic3ih7oc5kh3ph1 dt:bf16 dir:backward_weight tag:nhwc")
    given = operands(problem, 2)
    torch.testing.assert_close(
        run(planned(wrapped(problem, (("split-batch", (("parts", 2),)),))), given).double(),
        oracle(problem, given), rtol=0.02, atol=0.02,
    )  # fmt: skip
