"""The short text of a problem reads back as the same problem."""

from __future__ import annotations

import pytest
from hypothesis import given

from convwright.core.problem import ConvProblem
from convwright.wording.compact import compact
from problem_space import problems


@given(problems(least_images=1))
def test_it_reads_back(problem: ConvProblem) -> None:
    text = compact(problem)
    assert ConvProblem.parse(text) == problem
    assert len(text) <= len(problem.key)


@pytest.mark.parametrize(
    "text",
    [
        "mb32ic256oc256ih14kh3ph1",
        "g4ic8oc8ih9kh3 dt:fp16 tag:nhwc",
        "ic3oc8ih9iw8kh3kw1 dir:backward_data",
        "ic3oc8iw9kw3",
    ],
)
def test_what_can_be_inferred_is_left_out(text: str) -> None:
    assert compact(ConvProblem.parse(text)) == text
